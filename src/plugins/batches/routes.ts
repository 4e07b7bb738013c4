import { type Batch, isBatchId, NO_COUNTS } from './batch.ts'
import { notEndedError, type BatchQuery, type BatchRepository } from './batch-repository.ts'
import { readBatchRequests } from './batch-requests.ts'
import { Cancellation } from '../../core/async.ts'
import { GatewayError } from '../../core/errors.ts'
import type { HttpRequest } from '../../core/http.ts'
import type { JsonObject } from '../../core/json.ts'
import { parseBodyInSteps, type ParsedBody } from '../../formats/parse-body.ts'
import { reserveOneRequest } from '../../governance/reservation.ts'
import type { Caller } from '../../governance/caller.ts'
import { checkJsonHeaders, expectedBytes } from '../../http/body.ts'
import type { Endpoint, Method } from '../../http/router.ts'
import type { Services } from '../../kernel/services.ts'
import { checkHeaders } from '../../kernel/parse-request.ts'
import { hideStoredMargin } from '../../streams/stored-margin.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'

import { pathId, type Call, type Handler } from '../../kernel/call.ts'
import { readLimit } from '../../http/page-limit.ts'
import { findCaller } from '../../kernel/authenticate.ts'
import { baseHeaders } from '../../kernel/response-headers.ts'
import { parseLimits } from '../../kernel/limits.ts'
import { sendWithRateStatus } from '../../kernel/endpoint-responses.ts'

// The endpoints and the worker are loaded together, with the first request.
export { createBatchProcessing } from './batch-worker.ts'

interface Batches {
  readonly repository: BatchRepository
  readonly worker: { wake(keyId: string): void }
}

interface BaseUrls {
  readonly basePath: string
  readonly publicUrl: string | undefined
}

interface BatchCall extends Batches {
  /** Without a trailing slash. */
  readonly baseUrl: string
  readonly call: Call
  readonly caller: Caller
  readonly services: Services
}

type BatchHandler = (batchCall: BatchCall) => Promise<void>

const PATH = '/v1/messages/batches'
const DEFAULT_PAGE_SIZE = 20

export function batchEndpoints(
  services: Services,
  open: () => Promise<Batches>,
  baseUrls: BaseUrls,
): readonly Endpoint<Handler>[] {
  const endpoint = (method: Method, suffix: string, handle: BatchHandler): Endpoint<Handler> => ({
    method,
    path: PATH + suffix,
    handle: async (call) => {
      const caller = await findCaller(call, services)
      return handle({ ...(await open()), call, caller, services, baseUrl: baseUrlOf(call.request, baseUrls) })
    },
  })
  return [
    endpoint('POST', '', respondWith(create)),
    endpoint('GET', '', sendList),
    endpoint(
      'GET',
      '/:id',
      respondWith(({ repository, caller, call }) => repository.read(caller.scope, pathId(call))),
    ),
    endpoint('POST', '/:id/cancel', respondWith(cancel)),
    endpoint('GET', '/:id/results', sendResults),
    endpoint('DELETE', '/:id', remove),
  ]
}

function respondWith(action: (batchCall: BatchCall) => Promise<Batch>): BatchHandler {
  return async (batchCall) => {
    const { call, caller, services, baseUrl } = batchCall
    return sendWithRateStatus(call, caller, services, writeBatch(await action(batchCall), baseUrl))
  }
}

async function create(batchCall: BatchCall): Promise<Batch> {
  const { caller, services } = batchCall
  const { bodyLimits, bodyCapacity } = services
  const { request } = batchCall.call
  checkHeaders({ request, isSteered: true }, { canExplain: false }, services)
  checkJsonHeaders(request, bodyLimits.maxBytes)
  const capacity = await bodyCapacity.acquire(
    caller.scope,
    expectedBytes(request, bodyLimits.maxBytes),
    new Cancellation(),
  )
  try {
    const bytes = await request.body(bodyLimits)
    capacity.resize(bytes.byteLength)
    return await storeBatch(batchCall, bytes)
  } finally {
    capacity.release()
  }
}

async function storeBatch(
  { repository, worker, call, caller, services }: BatchCall,
  bytes: Uint8Array,
): Promise<Batch> {
  const { ledger, limits, runtime } = services
  // An item wraps its request, which adds one level of nesting.
  const itemLimits = { ...parseLimits(limits), depth: limits.jsonDepth + 1, textBytes: limits.promptBytes }
  const requests = await readBatchRequests(bytes, {
    parse: async (item) => {
      const parsed = await parseBodyInSteps(item, itemLimits, { pause: yieldToEventLoop, uuid: runtime.uuid })
      return { body: parsed.body, text: jsonTextOf(item, parsed) }
    },
    pause: yieldToEventLoop,
  })
  await reserveOneRequest(ledger, caller)
  const batch = await repository.create(
    { scope: caller.scope, keyId: caller.key.id, context: caller.context, headers: itemHeaders(call.request) },
    requests,
  )
  worker.wake(caller.scope)
  return batch
}

const ITEM_HEADERS = [
  'anthropic-version',
  'anthropic-beta',
  'cache-control',
  'x-svc-cache-threshold',
  'x-savings-level',
  'x-vanishing-context',
  'x-svc-rlm',
  'x-svc-force',
]
const MAX_HEADER_LENGTH = 1000

function itemHeaders(request: HttpRequest): Record<string, string> {
  return Object.fromEntries(
    ITEM_HEADERS.flatMap((name) => {
      const value = request.header(name)
      return value === undefined || value.length > MAX_HEADER_LENGTH ? [] : [[name, value]]
    }),
  )
}

async function cancel({ repository, worker, call, caller }: BatchCall): Promise<Batch> {
  const batch = await repository.cancel(caller.scope, pathId(call))
  worker.wake(caller.scope)
  return batch
}

async function remove({ repository, call, caller, services }: BatchCall): Promise<void> {
  await repository.remove(caller.scope, pathId(call))
  return sendWithRateStatus(call, caller, services, { id: pathId(call), type: 'message_batch_deleted' })
}

async function sendList({ repository, call, caller, services, baseUrl }: BatchCall): Promise<void> {
  const { batches, hasMore } = await repository.page(caller.scope, parsePageQuery(call.query))
  return sendWithRateStatus(call, caller, services, {
    data: batches.map((batch) => writeBatch(batch, baseUrl)),
    has_more: hasMore,
    first_id: batches[0]?.id ?? null,
    last_id: batches.at(-1)?.id ?? null,
  })
}

function parsePageQuery(query: URLSearchParams): BatchQuery {
  const limit = readLimit(query, DEFAULT_PAGE_SIZE)
  const after = parseBatchId(query, 'after_id')
  const before = parseBatchId(query, 'before_id')
  return { limit, ...(after !== undefined && { after }), ...(before !== undefined && { before }) }
}

function parseBatchId(query: URLSearchParams, param: string): string | undefined {
  const id = query.get(param)
  if (id === null || isBatchId(id)) return id ?? undefined
  throw new GatewayError('invalid-request', `${param}: expected the id of a message batch.`, { param })
}

async function sendResults({ repository, call, caller, services }: BatchCall): Promise<void> {
  const batch = await repository.read(caller.scope, pathId(call))
  if (batch.state !== 'ended') throw notEndedError('its results cannot be read')
  if (batch.archivedAt !== undefined) {
    throw new GatewayError('not-found', 'The results of this message batch were deleted after 29 days.')
  }
  const headers = baseHeaders(call.id, await services.ledger.status(caller))
  call.sink.begin(200, { ...headers, 'content-type': 'application/x-jsonl', 'cache-control': 'no-store' })
  await sendLines(call, repository.results(batch), services)
}

/** Disconnects a caller that reads no data for `timeouts.totalMs`. */
async function sendLines(
  { request, sink }: Call,
  lines: AsyncGenerator<string, void, undefined>,
  { runtime, timeouts, showsMargin }: Pick<Services, 'runtime' | 'timeouts' | 'showsMargin'>,
): Promise<void> {
  let wake: () => void = () => {}
  let isDisconnected = false
  sink.onDrain(() => wake())
  const disconnect = (): void => {
    isDisconnected = true
    wake()
  }
  request.onDisconnect(disconnect)
  const waitForDrain = async (): Promise<void> => {
    const cancel = runtime.after(timeouts.totalMs, disconnect)
    await new Promise<void>((resolve) => (wake = resolve))
    cancel()
  }
  try {
    for await (const line of lines) {
      const text = showsMargin ? line : hideStoredMargin(line)
      if (!sink.write(text) && !isDisconnected) await waitForDrain()
      if (isDisconnected) return sink.destroy()
    }
    sink.end()
  } catch {
    // After the headers have been sent, only a broken connection can signal that lines are missing.
    sink.destroy()
  }
}

/**
 * The empty base URL of a request without a valid host makes `results_url` a path, which the official clients resolve
 * against their own base URL. Headers such as `X-Forwarded-Host` are not read, because every caller can send them.
 */
function baseUrlOf({ origin }: HttpRequest, { basePath, publicUrl }: BaseUrls): string {
  if (publicUrl !== undefined) return new URL(publicUrl).href.replace(/\/+$/, '')
  return /^https?:/.test(origin) ? origin + basePath : ''
}

/** Runs for each response, because a stored URL would show the host in one request to the readers of others. */
function writeBatch(batch: Batch, baseUrl: string): JsonObject {
  const { counts = NO_COUNTS } = batch
  const hasEnded = batch.state === 'ended'
  return {
    id: batch.id,
    type: 'message_batch',
    processing_status: hasEnded ? 'ended' : batch.canceledAt === undefined ? 'in_progress' : 'canceling',
    request_counts: { processing: hasEnded ? 0 : batch.total, ...counts },
    created_at: toIsoTime(batch.createdAt),
    expires_at: toIsoTime(batch.expiresAt),
    ended_at: toIsoTime(batch.endedAt),
    cancel_initiated_at: toIsoTime(batch.canceledAt),
    archived_at: toIsoTime(batch.archivedAt),
    results_url: hasEnded && batch.archivedAt === undefined ? `${baseUrl}${PATH}/${batch.id}/results` : null,
  }
}

function toIsoTime(at: number | undefined): string | null {
  return at === undefined ? null : new Date(at).toISOString()
}

export function jsonTextOf(received: Uint8Array, { body, hasRepeatedKeys }: ParsedBody): string {
  return hasRepeatedKeys ? JSON.stringify(body) : new TextDecoder().decode(received)
}
