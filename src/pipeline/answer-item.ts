import type { Batch } from '../batches/batch.ts'
import { type ItemResult, type StoredRequest, writeResultLine } from '../batches/item-queue.ts'
import type { Cancellation, MaybePromise } from '../core/async.ts'
import { type FailureKind, GatewayError } from '../core/errors.ts'
import { ZERO } from '../core/money.ts'
import type { SettledEntry } from '../core/store.ts'
import { messagesClient } from '../formats/messages/client.ts'
import type { Reservation, RequestUsage } from '../governance/reservation.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import { checkValid } from './admission.ts'
import { type Authenticated, Exchange, type RequestOutcome } from './exchange.ts'
import { modelStages } from './run.ts'
import type { Services } from './services.ts'
import type { HeaderRecord, HttpRequest, ResponseSink } from '../core/http.ts'
import type { JsonObject } from '../core/json.ts'

export interface ItemAnswer {
  readonly result: ItemResult
  /** Delay before the next attempt, in milliseconds. Absent if the result is final. */
  readonly retryAfterMs?: number
  /** Settles and records the request. `isBilled` is false if another worker stored its result first. */
  commit(isBilled: boolean): Promise<void>
}

export interface ItemJob {
  readonly batch: Batch
  readonly request: StoredRequest
  readonly cancellation: Cancellation
}

/** Resolves with undefined if the key was deleted. */
export type FindKeyById = (id: string) => Promise<VirtualKey | undefined>

/**
 * Processes an item as a messages request with the key of its batch and the headers of the request that created the
 * batch.
 */
export async function answerItem(job: ItemJob, services: Services, findKeyById: FindKeyById): Promise<ItemAnswer> {
  const { batch, request } = job
  const postponed = postponeSettlement(services)
  const authenticate = async (exchange: Exchange): Promise<Authenticated> => {
    const key = checkValid(await findKeyById(batch.keyId), services.runtime.now())
    rejectStream(request)
    exchange.key = key
    return exchange as Authenticated
  }
  const response = new CollectedResponse()
  await modelStages(authenticate).run(createExchange(job, response, services), postponed.services)
  const line = writeResultLine(request.customId, response.status === 200 ? 'succeeded' : 'errored', response.body)
  const settlement = postponed.settlement()
  const retryAfterMs = retryDelayOf(postponed.failure())
  return {
    result: { line, ...(settlement !== undefined && { settlement }) },
    ...(retryAfterMs !== undefined && { retryAfterMs }),
    commit: postponed.commit,
  }
}

function createExchange(
  { batch, request, cancellation }: ItemJob,
  sink: CollectedResponse,
  { runtime }: Services,
): Exchange {
  const start = {
    id: `req_${runtime.uuid().replaceAll('-', '')}`,
    startedAt: runtime.now(),
    request: internalRequest('/v1/messages', batch.headers, request.params),
    sink,
    format: messagesClient,
  }
  return new Exchange(start, { isConnected: false, isDetached: false, cancellation })
}

function rejectStream({ params }: StoredRequest): void {
  if (params['stream'] !== true) return
  throw new GatewayError('invalid-request', 'A batch item cannot be streamed. Remove stream from its params.', {
    param: 'stream',
  })
}

/** Failures after which the worker retries the item, until the batch expires. */
const TEMPORARY_FAILURES: ReadonlySet<FailureKind> = new Set([
  'rate-limited',
  'upstream-rate-limited',
  'overloaded',
  'cancelled',
])
const DEFAULT_WAIT_MS = 10_000

function retryDelayOf(failure: GatewayError | undefined): number | undefined {
  if (failure === undefined || !TEMPORARY_FAILURES.has(failure.kind)) return undefined
  if (failure.kind === 'cancelled') return 0
  const { advice, retryAfterSeconds } = failure.details
  if (advice?.shouldRetry === 'false') return undefined
  return retryAfterSeconds === undefined ? DEFAULT_WAIT_MS : retryAfterSeconds * 1000
}

interface SettleArguments {
  readonly reservation: Reservation
  readonly used: RequestUsage
  readonly audit: readonly SettledEntry[]
}

interface PostponedSettlement {
  readonly services: Services
  failure(): GatewayError | undefined
  settlement(): ItemResult['settlement']
  commit(isBilled: boolean): Promise<void>
}

/**
 * Defers settlement and recording until `commit`. The worker stores the result together with its settlement before it
 * settles. Otherwise, a worker that takes over from a dead one would bill the item twice.
 */
function postponeSettlement(services: Services): PostponedSettlement {
  let settleArguments: SettleArguments | undefined
  let observation: { readonly exchange: Exchange; readonly outcome: RequestOutcome } | undefined
  const reserve: Services['ledger']['reserve'] = async (key, quote, wait) => {
    const reservation = await services.ledger.reserve(key, quote, wait)
    if (!reservation.isReserved) throw notReserved()
    return {
      ...reservation,
      settle: (used, audit = []) => {
        settleArguments ??= { reservation, used, audit }
      },
    }
  }
  const observers: Services['observers'] = {
    ...services.observers,
    observeRequest: (exchange, outcome) => {
      observation ??= { exchange, outcome }
    },
  }
  return {
    services: { ...services, ledger: { ...services.ledger, reserve }, observers },
    failure: () => observation?.outcome.failure,
    settlement: () => settleArguments?.reservation.settlement(settleArguments.used, settleArguments.audit),
    commit: async (isBilled) => {
      if (settleArguments !== undefined) await commitSettlement(settleArguments, isBilled)
      if (isBilled && observation !== undefined)
        await services.observers.observeRequest(observation.exchange, observation.outcome)
    },
  }
}

/**
 * An item without a reservation is retried, even with `onStoreFailure: 'allow'`, because its settlement must be written
 * to the store.
 */
function notReserved(): GatewayError {
  return new GatewayError(
    'overloaded',
    'The store failed before quota was reserved for this item. The item will be retried.',
  )
}

function commitSettlement({ reservation, used, audit }: SettleArguments, isBilled: boolean): MaybePromise<void> {
  return isBilled ? reservation.settle(used, audit) : reservation.settle(unbilled(used))
}

/** Returns the usage of a discarded answer. The vendor charges for the answer, but the key is not billed. */
function unbilled({ model, actual }: RequestUsage): RequestUsage {
  return {
    promptTokens: 0,
    completionTokens: 0,
    savedTokens: 0,
    theoretical: ZERO,
    actual,
    billed: ZERO,
    model,
  }
}

/** Returns an in-process request with a JSON body. The JSON limits apply to the body. */
function internalRequest(path: string, headers: Readonly<Record<string, string>>, body: JsonObject): HttpRequest {
  return {
    method: 'POST',
    path,
    query: '',
    origin: '',
    header: (name) => (name === 'content-type' ? 'application/json' : headers[name]),
    headerNames: () => [...Object.keys(headers), 'content-type'],
    body: () => new TextEncoder().encode(JSON.stringify(body)),
    onDisconnect: () => {},
  }
}

class CollectedResponse implements ResponseSink {
  status = 0
  body = ''

  send(status: number, _headers: HeaderRecord, body: Uint8Array | string): void {
    this.status = status
    this.body = typeof body === 'string' ? body : new TextDecoder().decode(body)
  }

  begin(): void {}

  write(): boolean {
    return true
  }

  onDrain(): void {}

  end(): void {}

  destroy(): void {}
}
