import { Cancellation, type TimeLimit, withTimeout } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { Runtime } from '../core/ports.ts'
import { type Store, quotaOf } from '../core/store.ts'
import { type Lease, type Subscribers, acquireLease } from './lifetime.ts'
import {
  createRun,
  type RepeatableAnswer,
  type RunOutcome,
  readClaim,
  type Run,
  type RunControl,
  writeClaim,
} from './run.ts'
import type { Recording } from './event-buffer.ts'

export interface IdempotentRequest {
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

/** The answer to the first request. `leave` detaches this caller from the stream. */
export type RepeatedAnswer =
  | Extract<RunOutcome, { readonly kind: 'complete' }>
  | (Extract<RunOutcome, { readonly kind: 'live' }> & { readonly leave: () => void })

/** Reports the end of the first request. Only the first report has an effect. Never rejects. */
export interface FirstRequest {
  /** Sends the answer to waiting requests, and to later ones until it expires. Resolves when the answer is stored. */
  remember(answer: RepeatableAnswer): Promise<void>
  /** Sends the stream to waiting requests. Stores the stream only if it is complete. */
  share(head: RepeatableAnswer['head'], recording: Recording): void
  /**
   * Sends the answer to waiting requests without storing it. Without an answer, waiting and later requests call the
   * upstream one at a time.
   */
  forget(answer?: RepeatableAnswer): Promise<void>
}

export type RequestClaim =
  | { readonly role: 'first'; readonly first: FirstRequest }
  | { readonly role: 'repetition'; readonly repeated: RepeatedAnswer }

/** Processes a request once for each Idempotency-Key. */
export interface Idempotency {
  /**
   * Waits for the first request with the same key. Throws `conflict` if the key was used for a different request, or if
   * the first request is still running after `timeoutMs`. Rejects if the store fails or the caller disconnects.
   */
  claim(request: IdempotentRequest): Promise<RequestClaim>
  /** Resolves when the answers to all ended requests are stored. */
  flush(): Promise<void>
  readonly size: number
}

export interface IdempotencyOptions extends Pick<Runtime, 'now' | 'uuid' | 'after'> {
  readonly store: Store
  /** How long an answer is stored, in seconds. @default 86,400 (24 hours) */
  readonly retentionSeconds?: number
  /** How long the claim of a dead process lasts, in milliseconds. @default 30,000 */
  readonly leaseMs?: number
  /** Interval between polls for another process's answer, in milliseconds. @default 250 */
  readonly pollMs?: number
}

const DAY_SECONDS = 86_400
const LEASE_MS = 30_000
const POLL_MS = 250
/** Maximum pause between attempts while store reads lag behind writes, in milliseconds. */
const MAX_BACKOFF_MS = 5_000
const MAX_DOUBLINGS = 10

export function createIdempotency(options: IdempotencyOptions): Idempotency {
  const { store, now, uuid, after } = options
  const { retentionSeconds = DAY_SECONDS, leaseMs = LEASE_MS, pollMs = POLL_MS } = options
  const runs = new Map<string, Run>()
  const closing = new Set<Promise<void>>()

  async function claim(request: IdempotentRequest): Promise<RequestClaim> {
    const name = `idempotency:${request.owner}:${encodeURIComponent(request.idempotencyKey)}`
    const deadline = now() + request.timeoutMs
    const timeout = (): TimeLimit => ({
      ms: deadline - now(),
      after,
      late: stillRunning,
      cancellation: Cancellation.of(request.signal),
    })
    for (;;) {
      const run = runs.get(name)
      if (run === undefined) return lead(name, request, timeout)
      const repeated = await join(run, request, timeout)
      if (repeated !== undefined) return { role: 'repetition', repeated }
    }
  }

  async function lead(name: string, request: IdempotentRequest, timeout: () => TimeLimit): Promise<RequestClaim> {
    const control = createRun(request.fingerprint, request.subscribers)
    runs.set(name, control.run)
    const end = (): void => {
      runs.delete(name)
      control.end()
    }
    try {
      const found = await findOrTake(name, request, timeout)
      if ('lease' in found) {
        control.begin()
        return { role: 'first', first: firstOf(found.lease, control, end) }
      }
      control.notify(found)
      end()
      return { role: 'repetition', repeated: found }
    } catch (error) {
      end()
      throw error
    }
  }

  async function findOrTake(
    name: string,
    { fingerprint, owner }: IdempotentRequest,
    timeout: () => TimeLimit,
  ): Promise<{ readonly lease: Lease } | Extract<RunOutcome, { readonly kind: 'complete' }>> {
    const text = writeClaim({ state: 'running', fingerprint, token: uuid() })
    const quota = quotaOf('idempotency', owner)
    for (let failures = 0; ;) {
      const expected = await store.get(name)
      const record = expected === undefined ? undefined : readClaim(expected)
      if (record === undefined) {
        const lease = await acquireLease({ store, after }, { name, expected, text, leaseMs, quota })
        if (lease !== undefined) return { lease }
        // The next read usually finds the first request. A pause is needed only if store reads lag behind writes.
        if (failures > 0) await withTimeout(pause(backoffMs(failures)), timeout())
        failures += 1
      } else if (record.fingerprint !== fingerprint) {
        throw otherRequest()
      } else if (record.state === 'done') {
        return { kind: 'complete', answer: record.answer }
      } else {
        await withTimeout(pause(pollMs), timeout())
      }
    }
  }

  function backoffMs(failures: number): number {
    return Math.min(MAX_BACKOFF_MS, pollMs * 2 ** Math.min(failures - 1, MAX_DOUBLINGS))
  }

  function pause(ms: number): Promise<void> {
    return new Promise((resolve) => void after(ms, resolve))
  }

  function firstOf(lease: Lease, { run, notify }: RunControl, end: () => void): FirstRequest {
    let isNotified = false
    const notifyOnce = (outcome: RunOutcome | undefined): boolean => {
      if (isNotified) return false
      isNotified = true
      notify(outcome)
      return true
    }
    const close = (answer: RepeatableAnswer | undefined): Promise<void> => {
      const done =
        answer === undefined ? undefined : writeClaim({ state: 'done', fingerprint: run.fingerprint, answer })
      const closed = lease.end(done, retentionSeconds * 1000).then(end)
      closing.add(closed)
      return closed.finally(() => void closing.delete(closed))
    }
    return {
      remember: async (answer) => {
        if (notifyOnce({ kind: 'complete', answer })) await close(answer)
      },
      share: (head, recording) => {
        if (!notifyOnce({ kind: 'live', head, recording })) return
        void recording.ended.then(({ isComplete, text }) =>
          close(isComplete && text !== undefined ? { status: 200, head, body: text } : undefined),
        )
      },
      forget: async (answer) => {
        if (notifyOnce(answer === undefined ? undefined : { kind: 'complete', answer })) await close(undefined)
      },
    }
  }

  return {
    claim,
    flush: async () => {
      while (closing.size > 0) await Promise.all(closing)
    },
    get size() {
      return runs.size
    },
  }
}

/** Returns undefined if the first request ended without an answer. The key can then be claimed again. */
async function join(
  run: Run,
  request: IdempotentRequest,
  timeout: () => TimeLimit,
): Promise<RepeatedAnswer | undefined> {
  if (run.fingerprint !== request.fingerprint) {
    if (await withTimeout(run.begun, timeout())) throw otherRequest()
    return undefined
  }
  if (run.subscribers.isOver) {
    await withTimeout(run.over, timeout())
    return undefined
  }
  const leave = run.subscribers.join()
  let isFollowing = false
  try {
    const outcome = await withTimeout(run.outcome, timeout())
    if (outcome === undefined) await withTimeout(run.over, timeout())
    if (outcome?.kind !== 'live') return outcome
    isFollowing = true
    return { ...outcome, leave }
  } finally {
    if (!isFollowing) leave()
  }
}

function otherRequest(): GatewayError {
  return new GatewayError(
    'conflict',
    'This Idempotency-Key was used in the last 24 hours for another path or body. Use a new key for each request.',
    { param: 'Idempotency-Key', code: 'idempotency_key_reused', advice: { shouldRetry: 'false' } },
  )
}

function stillRunning(): GatewayError {
  return new GatewayError('conflict', 'The first request with this Idempotency-Key is still running. Retry later.', {
    param: 'Idempotency-Key',
    code: 'idempotency_key_in_use',
    retryAfterSeconds: 1,
  })
}
