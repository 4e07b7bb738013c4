import { Cancellation, type TimeLimit, withTimeout } from '../../core/async.ts'
import { deletePrefix } from '../../core/delete-prefix.ts'
import { GatewayError } from '../../core/errors.ts'
import { asObject, isJsonObject, parseJson } from '../../core/json.ts'
import type { Runtime } from '../../core/ports.ts'
import { type Store, quotaOf } from '../../core/store.ts'
import type { Recording } from '../../streams/event-buffer.ts'
import { acquireLease, type Lease } from '../../streams/lease.ts'
import type { Subscribers } from '../../streams/shared-work.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'

interface IdempotentRequest {
  /** The id of the virtual key. Idempotency keys of different owners never match. */
  readonly owner: string
  readonly idempotencyKey: string
  /** Equal for requests with the same path and body. */
  readonly fingerprint: string
  readonly subscribers: Subscribers
  readonly signal: AbortSignal
  /** Maximum wait for the first request, in milliseconds. */
  readonly timeoutMs: number
}

/** Without headers that apply to a single response, such as the request id and the rate limits. */
export interface RepeatableResponse {
  readonly status: number
  readonly head: Readonly<Record<string, string>>
  readonly body: string
}

interface CompleteResponse {
  readonly kind: 'complete'
  readonly response: RepeatableResponse
}

interface LiveResponse {
  readonly kind: 'live'
  readonly head: RepeatableResponse['head']
  readonly recording: Recording
}

/** `leave` ends this caller's subscription to the first request. */
export type ReplayedResponse = CompleteResponse | (LiveResponse & { readonly leave: () => void })

/** Only the first call of any of these methods has an effect. */
export interface FirstRequest {
  /** Sends the response to waiting requests, and to later ones until it expires. */
  remember(response: RepeatableResponse): Promise<void>
  /** Sends the stream to waiting requests. Stores the stream only if it is complete. */
  share(head: RepeatableResponse['head'], recording: Recording): void
  /** Does not store the response. Without a response, waiting and later requests call the upstream one at a time. */
  release(response?: RepeatableResponse): Promise<void>
}

export type RequestClaim =
  | { readonly role: 'first'; readonly first: FirstRequest }
  | { readonly role: 'repetition'; readonly replayed: ReplayedResponse }

export interface IdempotencyOptions extends Pick<Runtime, 'now' | 'uuid' | 'after'> {
  readonly store: Store
}

/** 24 hours. */
const RETENTION_MS = 86_400_000
/** How long the claim of a dead process remains valid, in milliseconds. */
const LEASE_MS = 30_000
const POLL_MS = 250
const MAX_BACKOFF_MS = 5_000

function prefixOf(owner: string): string {
  return `idempotency:${owner}:`
}

export class Idempotency {
  readonly #options: IdempotencyOptions
  readonly #runs = new Map<string, Run>()
  readonly #closing = new Set<Promise<void>>()

  constructor(options: IdempotencyOptions) {
    this.#options = options
  }

  get size(): number {
    return this.#runs.size
  }

  /** Throws `conflict` for the key of a different request, or if the first request still runs after `timeoutMs`. */
  async claim(request: IdempotentRequest): Promise<RequestClaim> {
    const { now, after } = this.#options
    const name = prefixOf(request.owner) + encodeURIComponent(request.idempotencyKey)
    const deadline = now() + request.timeoutMs
    const timeLimit = (): TimeLimit => ({
      ms: deadline - now(),
      after,
      createError: stillRunningError,
      cancellation: Cancellation.of(request.signal),
    })
    for (;;) {
      const run = this.#runs.get(name)
      if (run === undefined) return this.#lead(name, request, timeLimit)
      const replayed = await join(run, request, timeLimit)
      if (replayed !== undefined) return { role: 'repetition', replayed }
    }
  }

  purge(owner: string): Promise<void> {
    return deletePrefix(this.#options.store, prefixOf(owner), yieldToEventLoop)
  }

  async flush(): Promise<void> {
    while (this.#closing.size > 0) await Promise.all(this.#closing)
  }

  async #lead(name: string, request: IdempotentRequest, timeLimit: () => TimeLimit): Promise<RequestClaim> {
    const run = new Run(request)
    this.#runs.set(name, run)
    const end = (): void => {
      this.#runs.delete(name)
      run.end()
    }
    try {
      const result = await this.#findOrAcquire(name, request, timeLimit)
      if ('lease' in result) {
        run.begun.resolve(true)
        return { role: 'first', first: this.#firstRequest(result.lease, run, end) }
      }
      run.outcome.resolve(result)
      end()
      return { role: 'repetition', replayed: result }
    } catch (error) {
      end()
      throw error
    }
  }

  async #findOrAcquire(
    name: string,
    { fingerprint, owner }: IdempotentRequest,
    timeLimit: () => TimeLimit,
  ): Promise<{ readonly lease: Lease } | CompleteResponse> {
    const { store, uuid, after } = this.#options
    const value = writeClaim({ state: 'running', fingerprint, token: uuid() })
    const quota = quotaOf('idempotency', owner)
    const pause = (ms: number): Promise<void> =>
      withTimeout(new Promise((resolve) => void after(ms, resolve)), timeLimit())
    for (let failures = 0; ;) {
      const expected = await store.get(name)
      const record = expected === undefined ? undefined : readClaim(expected)
      if (record === undefined) {
        const lease = await acquireLease({ store, after }, { name, expected, value, leaseMs: LEASE_MS, quota })
        if (lease !== undefined) return { lease }
        // The next read usually finds the first request. A pause is needed only if store reads lag behind writes.
        if (failures > 0) await pause(Math.min(MAX_BACKOFF_MS, POLL_MS * 2 ** (failures - 1)))
        failures += 1
      } else if (record.fingerprint !== fingerprint) {
        throw keyReusedError()
      } else if (record.state === 'done') {
        return { kind: 'complete', response: record.response }
      } else {
        await pause(POLL_MS)
      }
    }
  }

  #firstRequest(lease: Lease, run: Run, end: () => void): FirstRequest {
    let isReported = false
    const reportOnce = (outcome: Outcome): boolean => {
      if (isReported) return false
      isReported = true
      run.outcome.resolve(outcome)
      return true
    }
    const close = (response: RepeatableResponse | undefined): Promise<void> => {
      const { fingerprint } = run.request
      const value = response === undefined ? undefined : writeClaim({ state: 'done', fingerprint, response })
      const closed = lease.end(value, RETENTION_MS).then(end)
      this.#closing.add(closed)
      return closed.finally(() => void this.#closing.delete(closed))
    }
    return {
      remember: async (response) => {
        if (reportOnce({ kind: 'complete', response })) await close(response)
      },
      share: (head, recording) => {
        if (!reportOnce({ kind: 'live', head, recording })) return
        void recording.ended.then(({ isComplete, text }) =>
          close(isComplete && text !== undefined ? { status: 200, head, body: text } : undefined),
        )
      },
      release: async (response) => {
        if (reportOnce(response && { kind: 'complete', response })) await close(undefined)
      },
    }
  }
}

/** Undefined if the first request ended without a response to share. */
type Outcome = CompleteResponse | LiveResponse | undefined

class Run {
  readonly request: Pick<IdempotentRequest, 'fingerprint' | 'subscribers'>
  /** Resolves with true once the request runs as the first one with its key, or with false if it ends before that. */
  readonly begun: Deferred<boolean> = new Deferred()
  readonly outcome: Deferred<Outcome> = new Deferred()
  /** Resolves when other requests with the key may start. */
  readonly over: Deferred<void> = new Deferred()

  constructor(request: Pick<IdempotentRequest, 'fingerprint' | 'subscribers'>) {
    this.request = request
  }

  end(): void {
    this.begun.resolve(false)
    this.outcome.resolve(undefined)
    this.over.resolve()
  }
}

class Deferred<T> {
  resolve: (value: T) => void = () => {}
  readonly promise = new Promise<T>((resolve) => (this.resolve = resolve))
}

/** Returns undefined if the key can be claimed again. */
async function join(
  { request: first, begun, outcome, over }: Run,
  request: IdempotentRequest,
  timeLimit: () => TimeLimit,
): Promise<ReplayedResponse | undefined> {
  if (first.fingerprint !== request.fingerprint) {
    if (await withTimeout(begun.promise, timeLimit())) throw keyReusedError()
    return undefined
  }
  if (!first.subscribers.isOver) {
    const leave = first.subscribers.join()
    let isFollowing = false
    try {
      const shared = await withTimeout(outcome.promise, timeLimit())
      if (shared?.kind === 'complete') return shared
      // A stream that exceeds the capacity for recordings cannot be followed.
      isFollowing = shared?.recording.isStored === true
      if (shared !== undefined && isFollowing) return { ...shared, leave }
    } finally {
      if (!isFollowing) leave()
    }
  }
  await withTimeout(over.promise, timeLimit())
  return undefined
}

type ClaimRecord =
  | { readonly state: 'running'; readonly fingerprint: string; readonly token: string }
  | { readonly state: 'done'; readonly fingerprint: string; readonly response: RepeatableResponse }

/** One line of JSON, followed by the raw body, because serializing a long string as JSON is slow. */
function writeClaim(record: ClaimRecord): string {
  if (record.state === 'running') return JSON.stringify(record)
  const { status, head, body } = record.response
  return `${JSON.stringify({ state: 'done', fingerprint: record.fingerprint, status, head })}\n${body}`
}

function readClaim(text: string): ClaimRecord | undefined {
  const end = text.indexOf('\n')
  const line = asObject(parseJson(end === -1 ? text : text.slice(0, end)))
  if (line === undefined) return undefined
  const { state, fingerprint, token, status, head } = line
  if (typeof fingerprint !== 'string') return undefined
  if (state === 'running' && typeof token === 'string') return { state, fingerprint, token }
  if (state !== 'done' || end === -1 || typeof status !== 'number' || !isHead(head)) return undefined
  return { state, fingerprint, response: { status, head, body: text.slice(end + 1) } }
}

function isHead(value: unknown): value is Record<string, string> {
  return isJsonObject(value) && Object.values(value).every((field) => typeof field === 'string')
}

function keyReusedError(): GatewayError {
  return new GatewayError(
    'conflict',
    'This Idempotency-Key was used in the last 24 hours for another path or body. Use a new key for each request.',
    { param: 'Idempotency-Key', code: 'idempotency_key_reused', advice: { shouldRetry: 'false' } },
  )
}

function stillRunningError(): GatewayError {
  return new GatewayError('conflict', 'The first request with this Idempotency-Key is still running. Retry later.', {
    param: 'Idempotency-Key',
    code: 'idempotency_key_in_use',
    retryAfterSeconds: 1,
  })
}
