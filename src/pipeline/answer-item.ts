import type { Batch } from '../batches/batch.ts'
import { writeLine, type ItemResult, type StoredRequest } from '../batches/item-queue.ts'
import { GatewayError, type FailureKind } from '../core/errors.ts'
import { ZERO } from '../core/money.ts'
import { anthropicFormat } from '../formats/anthropic/format.ts'
import type { Reservation, Used } from '../governance/reservation.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import { checkValid } from './admit.ts'
import { run } from './run.ts'
import type { Admitted, Outcome, Parts, Reached, Received } from './stages.ts'

/** An item that went the whole line; nothing of it is settled or written down before `commit`. */
export interface ItemAnswer {
  readonly result: ItemResult
  /** When there is no answer yet: wait so long for another try, in milliseconds. */
  readonly againAfterMs?: number
  /** Settles and writes down what the item used; nothing when its answer does not count because another was first. */
  commit(counts: boolean): Promise<void>
}

export interface ItemJob {
  readonly batch: Batch
  readonly request: StoredRequest
  readonly signal: AbortSignal
  readonly abort: (reason: unknown) => void
}

/** Finds a key by its id; undefined for one that was deleted. */
export type KeyById = (id: string) => Promise<VirtualKey | undefined>

/** Answers one item of a batch as a message request of its key, with the headers of the request that made the batch. */
export async function answerItem(job: ItemJob, parts: Parts, keyById: KeyById): Promise<ItemAnswer> {
  const { batch, request } = job
  const withheld = withhold(parts)
  const admit = async (received: Received): Promise<Admitted> => {
    const key = checkValid(await keyById(batch.keyId), parts.runtime.now())
    refuseStream(request)
    return { ...received, key }
  }
  const response = await run(receivedOf(job, parts), withheld.parts, admit)
  const body = await response.text()
  const line = writeLine(request.customId, response.status === 200 ? 'succeeded' : 'errored', body)
  const settlement = withheld.settlement()
  const againAfterMs = waitOf(withheld.failure())
  return {
    result: { line, ...(settlement !== undefined && { settlement }) },
    ...(againAfterMs !== undefined && { againAfterMs }),
    commit: withheld.commit,
  }
}

function receivedOf({ batch, request, signal, abort }: ItemJob, parts: Parts): Received {
  const { uuid, now } = parts.runtime
  return {
    id: `req_${uuid().replaceAll('-', '')}`,
    startedAt: now(),
    request: new Request('http://batch.invalid/v1/messages', {
      method: 'POST',
      headers: { ...batch.headers, 'content-type': 'application/json' },
      body: JSON.stringify(request.params),
    }),
    format: anthropicFormat,
    signal,
    abort,
  }
}

function refuseStream({ params }: StoredRequest): void {
  if (params['stream'] !== true) return
  throw new GatewayError('invalid-request', 'An item of a batch cannot be streamed. Leave stream out of its params.', {
    param: 'stream',
  })
}

/** Failures that pass: the item waits and is tried again until its batch expires. */
const PASSING: ReadonlySet<FailureKind> = new Set(['rate-limited', 'upstream-rate-limited', 'overloaded', 'cancelled'])
const DEFAULT_WAIT_MS = 10_000

function waitOf(failure: GatewayError | undefined): number | undefined {
  if (failure === undefined || !PASSING.has(failure.kind)) return undefined
  if (failure.kind === 'cancelled') return 0
  const { advice, retryAfterSeconds } = failure.details
  if (advice?.shouldRetry === 'false') return undefined
  return retryAfterSeconds === undefined ? DEFAULT_WAIT_MS : retryAfterSeconds * 1000
}

interface Withheld {
  /** The same parts, which settle and record nothing. */
  readonly parts: Parts
  failure(): GatewayError | undefined
  settlement(): ItemResult['settlement']
  commit(counts: boolean): Promise<void>
}

/**
 * The result of an item must be in the store before its money is settled, and in the same step as what must be
 * settled: only then can a process that takes over from a dead one finish its work without a second bill.
 */
function withhold(parts: Parts): Withheld {
  let settling: { readonly reservation: Reservation; readonly used: Used } | undefined
  let ending: { readonly reached: Reached; readonly outcome: Outcome } | undefined
  const reserve: Parts['ledger']['reserve'] = async (key, quote) => {
    const reservation = await parts.ledger.reserve(key, quote)
    return {
      ...reservation,
      settle: async (used) => {
        settling ??= { reservation, used }
      },
    }
  }
  return {
    parts: {
      ...parts,
      ledger: { ...parts.ledger, reserve },
      records: {
        ...parts.records,
        record: async (reached, outcome) => {
          ending ??= { reached, outcome }
        },
      },
    },
    failure: () => ending?.outcome.failure,
    settlement: () => settling?.reservation.settlement(settling.used),
    commit: async (counts) => {
      if (settling !== undefined) await settling.reservation.settle(counts ? settling.used : unbilled(settling.used))
      if (counts && ending !== undefined) await parts.records.record(ending.reached, ending.outcome)
    },
  }
}

/** The vendor was paid also for an answer that does not count. */
function unbilled({ model, actual }: Used): Used {
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
