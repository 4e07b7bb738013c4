import type { Subscribers } from './subscribers.ts'
import type { KeptAnswer } from './claim-record.ts'
import type { Recording } from './event-buffer.ts'

/** How a first request ended, for those who asked the same. */
export type Outcome =
  | { readonly kind: 'kept'; readonly answer: KeptAnswer }
  /** It has begun to answer and may be followed. */
  | { readonly kind: 'live'; readonly head: KeptAnswer['head']; readonly recording: Recording }

/** A request of this process that carries an Idempotency-Key and is not over. */
export interface Run {
  readonly fingerprint: string
  /** Those who wait for it. */
  readonly subscribers: Subscribers
  /** True when it is the first of all processes; false when it turned out not to be. */
  readonly begun: Promise<boolean>
  /** Undefined: it ended without an answer that others could have. */
  readonly outcome: Promise<Outcome | undefined>
  /** Resolves when it no longer blocks another request. */
  readonly over: Promise<void>
}

export interface RunControl {
  readonly run: Run
  readonly begin: () => void
  readonly tell: (outcome: Outcome | undefined) => void
  readonly end: () => void
}

export function createRun(fingerprint: string, subscribers: Subscribers): RunControl {
  const begun = settleable<boolean>()
  const outcome = settleable<Outcome | undefined>()
  const over = settleable<void>()
  return {
    run: { fingerprint, subscribers, begun: begun.promise, outcome: outcome.promise, over: over.promise },
    begin: () => begun.resolve(true),
    tell: outcome.resolve,
    end: () => {
      begun.resolve(false)
      outcome.resolve(undefined)
      over.resolve()
    },
  }
}

function settleable<T>(): { readonly promise: Promise<T>; readonly resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => {}
  const promise = new Promise<T>((settle) => {
    resolve = settle
  })
  return { promise, resolve }
}
