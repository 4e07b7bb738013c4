import type { Subscribers } from './subscribers.ts'
import type { Recording } from './event-buffer.ts'
import { asObject, isJsonObject, parseJson } from '../core/json.ts'
import type { Runtime } from '../core/ports.ts'

/** How the first request ended, for requests with the same Idempotency-Key. */
export type RunOutcome =
  | { readonly kind: 'kept'; readonly answer: KeptAnswer }
  /** It has begun to answer and may be followed. */
  | { readonly kind: 'live'; readonly head: KeptAnswer['head']; readonly recording: Recording }

/** A request of this process that carries an Idempotency-Key and is not over. */
export interface Run {
  readonly fingerprint: string
  /** The requests that wait for it. */
  readonly subscribers: Subscribers
  /** True when it is the first of all processes; false when it turned out not to be. */
  readonly begun: Promise<boolean>
  /** Undefined: it ended without an answer that others could have. */
  readonly outcome: Promise<RunOutcome | undefined>
  /** Resolves when it no longer blocks another request. */
  readonly over: Promise<void>
}

export interface RunControl {
  readonly run: Run
  readonly begin: () => void
  readonly notify: (outcome: RunOutcome | undefined) => void
  readonly end: () => void
}

export function createRun(fingerprint: string, subscribers: Subscribers): RunControl {
  const begun = settleable<boolean>()
  const outcome = settleable<RunOutcome | undefined>()
  const over = settleable<void>()
  return {
    run: { fingerprint, subscribers, begun: begun.promise, outcome: outcome.promise, over: over.promise },
    begin: () => begun.resolve(true),
    notify: outcome.resolve,
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

/** An answer that can be sent again, without headers that belong to one response (request id, rate limits). */
export interface KeptAnswer {
  readonly status: number
  /** Header names in lower case. */
  readonly head: Readonly<Record<string, string>>
  readonly body: string
}

/** The stored value of an Idempotency-Key. Different requests have different fingerprints. */
type ClaimRecord =
  | { readonly state: 'running'; readonly fingerprint: string; readonly token: string }
  | { readonly state: 'done'; readonly fingerprint: string; readonly answer: KeptAnswer }

/** One line of JSON, and for an answer its body as it is. */
export function writeClaim(record: ClaimRecord): string {
  if (record.state === 'running') return JSON.stringify(record)
  const { status, head, body } = record.answer
  return `${JSON.stringify({ state: 'done', fingerprint: record.fingerprint, status, head })}\n${body}`
}

/** Undefined for a text that `writeClaim` did not write. */
export function readClaim(text: string): ClaimRecord | undefined {
  const end = text.indexOf('\n')
  const line = asObject(parseJson(end === -1 ? text : text.slice(0, end)))
  if (line === undefined) return undefined
  const { state, fingerprint, token, status, head } = line
  if (typeof fingerprint !== 'string') return undefined
  if (state === 'running' && typeof token === 'string') return { state, fingerprint, token }
  if (state !== 'done' || end === -1 || typeof status !== 'number' || !isHead(head)) return undefined
  return { state, fingerprint, answer: { status, head, body: text.slice(end + 1) } }
}

function isHead(value: unknown): value is Record<string, string> {
  return isJsonObject(value) && Object.values(value).every((field) => typeof field === 'string')
}

export interface TimeoutOptions extends Pick<Runtime, 'after'> {
  /** Milliseconds. */
  readonly ms: number
  /** The caller's own. */
  readonly signal: AbortSignal
  /** Returns the error for a timeout. */
  readonly late: () => Error
}

/**
 * Resolves like `work`. Rejects on a timeout and when the caller disconnects. Removes its timer and listener in any
 * case.
 */
export async function withTimeout<T>(work: Promise<T>, { ms, after, signal, late }: TimeoutOptions): Promise<T> {
  signal.throwIfAborted()
  let giveUp: (reason: unknown) => void = () => {}
  const ended = new Promise<never>((_, reject) => {
    giveUp = reject
  })
  const leave = (): void => giveUp(signal.reason)
  const cancel = after(Math.max(0, ms), () => giveUp(late()))
  signal.addEventListener('abort', leave, { once: true })
  try {
    return await Promise.race([work, ended])
  } finally {
    cancel()
    signal.removeEventListener('abort', leave)
  }
}
