import { authenticate, reserve } from './admission.ts'
import { callUpstream } from './call-upstream.ts'
import type { Authenticated, Exchange, Parsed } from './exchange.ts'
import { parseRequest } from './parse-request.ts'
import { plan } from './plan.ts'
import { respond } from './respond.ts'
import { isPromise, type MaybePromise } from '../core/async.ts'
import { fail, release } from './settle.ts'
import type { Services } from './services.ts'
import { hasFlag } from '../core/http.ts'
import { GatewayError } from '../core/errors.ts'
import { sha256 } from '#hash'
import type { ReplayedAnswer } from '../replay/idempotency.ts'
import { eventSinkOf } from './stream-answer.ts'
import { baseHeaders } from './response.ts'

/**
 * Returns the stages of a model request, in order.
 *
 * @param authenticateStage Authenticates the request. Batch items have no key in their headers and use the key of the
 * batch.
 */
export function modelStages(authenticateStage: Stage<Exchange, Authenticated> = authenticate): Stages<Exchange> {
  return Stages.begin(authenticateStage) // key: 401
    .next(parseRequest) //                  prompt, model, permissions: 400 403 404 413
    .next(explain) //                       X-Svc-Explain: returns the plan without running it
    .next(deduplicate) //                   Idempotency-Key: replays the first answer, 409
    .next(reserve) //                       rate limits and worst-case cost: 402 429
    .next(plan) //                          finds a cached answer, or optimizes the prompt
    .next(callUpstream) //                  retries and fallbacks: 502 503 504
    .next(respond) //                       answers in the caller's format; settles once
}

/** Sets more fields of the exchange and returns it. Returns undefined if the stage has answered the request. */
type Stage<Before, After> = (exchange: Before, services: Services) => MaybePromise<After | undefined>

/** A stage with its types erased. The types of `next` ensure that each stage accepts the result of the previous one. */
interface ErasedStage {
  run(exchange: Exchange, services: Services): MaybePromise<Exchange | undefined>
}

/**
 * A sequence of stages. The stages run synchronously until a stage returns a promise. `fail` writes the error response
 * if any stage fails.
 */
export class Stages<Last extends Exchange> {
  readonly #stages: readonly ErasedStage[]

  private constructor(stages: readonly ErasedStage[]) {
    this.#stages = stages
  }

  static begin<After extends Exchange>(stage: Stage<Exchange, After>): Stages<After> {
    return new Stages([{ run: stage }])
  }

  next<After extends Exchange>(stage: Stage<Last, After>): Stages<After> {
    const added: { run(exchange: Last, services: Services): MaybePromise<After | undefined> } = { run: stage }
    return new Stages<After>([...this.#stages, added])
  }

  run(exchange: Exchange, services: Services): MaybePromise<void> {
    try {
      for (let index = 0; index < this.#stages.length; index++) {
        const result = this.#stages[index]?.run(exchange, services)
        if (isPromise(result)) return this.#runAfter(result, index + 1, exchange, services)
        if (result === undefined) return undefined
      }
    } catch (error) {
      return fail(exchange, error, services)
    }
  }

  /**
   * Runs the remaining stages after the first promise. One async function for all remaining stages creates fewer
   * promises than chaining them.
   */
  async #runAfter(
    waiting: Promise<Exchange | undefined>,
    next: number,
    exchange: Exchange,
    services: Services,
  ): Promise<void> {
    try {
      let current = await waiting
      for (let index = next; current !== undefined && index < this.#stages.length; index++) {
        const result = this.#stages[index]?.run(exchange, services)
        current = isPromise(result) ? await result : result
      }
    } catch (error) {
      await fail(exchange, error, services)
    }
  }
}

/** Answers requests that have `X-Svc-Explain`. The first such request loads the module. */
function explain(parsed: Parsed, services: Services): MaybePromise<Parsed | undefined> {
  if (!hasFlag(parsed.request, 'x-svc-explain')) return parsed
  return import('./rare-stages.ts')
    .then((loaded) => loaded.explain(parsed, services))
    .finally(() => parsed.capacity?.release())
}

/** Accepts only printable ASCII, because clients encode other characters in headers differently. */
const KEY_PATTERN = /^[\x20-\x7e]{1,255}$/

/**
 * Processes only the first request with a given Idempotency-Key. A repeated request waits for the first one and
 * receives its answer. A request with the same key but a different path or body is rejected with 409.
 */
export function deduplicate(parsed: Parsed, services: Services): MaybePromise<Parsed | undefined> {
  const idempotencyKey = parsed.request.header('idempotency-key')
  if (idempotencyKey === undefined || parsed.subscribers === undefined) return parsed
  if (!KEY_PATTERN.test(idempotencyKey)) throw invalidIdempotencyKey()
  return claim(parsed, idempotencyKey, services)
}

async function claim(parsed: Parsed, idempotencyKey: string, services: Services): Promise<Parsed | undefined> {
  const { key, subscribers, cancellation, request, requestBody } = parsed
  if (subscribers === undefined) return parsed
  const claimed = await services.idempotency.claim({
    owner: key.id,
    idempotencyKey,
    // A request with a forged fingerprint would receive the answer of another request, so the hash must be SHA-256.
    fingerprint: sha256(`${request.path}\n${JSON.stringify(requestBody)}`),
    subscribers,
    signal: cancellation.signal,
    timeoutMs: services.timeouts.total,
  })
  if (claimed.role === 'repetition') return replay(parsed, claimed.replayed, services)
  parsed.idempotencyClaim = claimed.first
  return parsed
}

function invalidIdempotencyKey(): GatewayError {
  return new GatewayError(
    'invalid-request',
    'Idempotency-Key: expected 1 to 255 printable ASCII characters, such as a UUID.',
    { param: 'Idempotency-Key' },
  )
}

/**
 * Sends the answer of the first request with this Idempotency-Key, byte for byte and with its bill. The repeated
 * request makes no reservation or upstream call, and is not billed. An answer that is still being streamed is sent from
 * its beginning.
 */
async function replay(parsed: Parsed, replayed: ReplayedAnswer, services: Services): Promise<undefined> {
  const { key, id, sink } = parsed
  try {
    const status = replayed.kind === 'complete' ? replayed.answer.status : 200
    const headers = { ...baseHeaders(id, await services.ledger.status(key)), 'idempotency-replayed': 'true' }
    await release(parsed, { status }, services)
    if (replayed.kind === 'complete') {
      sink.send(status, { ...headers, ...replayed.answer.head }, replayed.answer.body)
      return
    }
    sink.begin(status, { ...headers, ...replayed.head })
    const stopReading = replayed.recording.follow(0, eventSinkOf(parsed, services))
    parsed.onDisconnect = () => {
      stopReading()
      replayed.leave()
    }
  } catch (error) {
    if (replayed.kind === 'live') replayed.leave()
    throw error
  }
}
