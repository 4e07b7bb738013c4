import type { Subscribers } from './lifetime.ts'
import type { Recording } from './event-buffer.ts'
import { asObject, isJsonObject, parseJson } from '../core/json.ts'

/** The outcome of the first request with an Idempotency-Key, which repeated requests receive. */
export type RunOutcome =
  | { readonly kind: 'complete'; readonly answer: RepeatableAnswer }
  /** The answer is being streamed and can be followed. */
  | { readonly kind: 'live'; readonly head: RepeatableAnswer['head']; readonly recording: Recording }

/** An unfinished request with an Idempotency-Key in this process. */
export interface Run {
  readonly fingerprint: string
  readonly subscribers: Subscribers
  /** Resolves with true once the request runs as the first one with its key, or with false if it ends before that. */
  readonly begun: Promise<boolean>
  /** Resolves with undefined if the request ended without an answer to share. */
  readonly outcome: Promise<RunOutcome | undefined>
  /** Resolves when other requests with the key may start. */
  readonly over: Promise<void>
}

export interface RunControl {
  readonly run: Run
  readonly begin: () => void
  readonly notify: (outcome: RunOutcome | undefined) => void
  readonly end: () => void
}

export function createRun(fingerprint: string, subscribers: Subscribers): RunControl {
  const begun = deferred<boolean>()
  const outcome = deferred<RunOutcome | undefined>()
  const over = deferred<void>()
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

function deferred<T>(): { readonly promise: Promise<T>; readonly resolve: (value: T) => void } {
  let resolve: (value: T) => void = () => {}
  const promise = new Promise<T>((settle) => {
    resolve = settle
  })
  return { promise, resolve }
}

/** An answer that can be sent again, without headers of a single response, such as its request id and rate limits. */
export interface RepeatableAnswer {
  readonly status: number
  readonly head: Readonly<Record<string, string>>
  readonly body: string
}

type ClaimRecord =
  | { readonly state: 'running'; readonly fingerprint: string; readonly token: string }
  | { readonly state: 'done'; readonly fingerprint: string; readonly answer: RepeatableAnswer }

/** One line of JSON, followed by the raw body of the answer. */
export function writeClaim(record: ClaimRecord): string {
  if (record.state === 'running') return JSON.stringify(record)
  const { status, head, body } = record.answer
  return `${JSON.stringify({ state: 'done', fingerprint: record.fingerprint, status, head })}\n${body}`
}

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
