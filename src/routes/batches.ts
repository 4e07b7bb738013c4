import { isBatchId, writeBatch, type Batch } from '../batches/batch.ts'
import { notEndedError, type BatchQuery, type BatchRepository } from '../batches/batch-repository.ts'
import { readBatchRequests } from '../batches/batch-requests.ts'
import { Cancellation } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { JsonObject } from '../core/json.ts'
import { parseBodyInSteps, jsonTextOf } from '../formats/parse-body.ts'
import { reserveOneRequest } from '../governance/reservation.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import { type HttpRequest } from '../core/http.ts'
import { checkJsonHeaders, expectedBytes } from '../http/body.ts'
import { findCallerKey } from '../pipeline/admission.ts'
import { baseHeaders } from '../pipeline/response.ts'
import type { Services } from '../pipeline/services.ts'
import { parseLimits, readSteering } from '../pipeline/parse-request.ts'
import { yieldToEventLoop } from '../tokens/event-loop.ts'
import { pathId, sendWithRateStatus, type Call, type Handler } from './endpoint.ts'
import { readLimit } from './info.ts'

export interface BatchRouteDependencies {
  readonly repository: BatchRepository
  /** Called after a batch of the key has been created or canceled. */
  readonly wake: (keyId: string) => void
  readonly services: Pick<
    Services,
    'findKey' | 'ledger' | 'limits' | 'bodyLimits' | 'bodyCapacity' | 'runtime' | 'timeouts'
  >
}

const PATH = '/v1/messages/batches'
const DEFAULT_PAGE_SIZE = 20

export interface BatchHandlers {
  readonly create: Handler
  readonly list: Handler
  readonly read: Handler
  readonly cancel: Handler
  readonly results: Handler
  readonly remove: Handler
}

/** Returns the handlers of message batches. A key has access only to its own batches. */
export function batchHandlers(dependencies: BatchRouteDependencies): BatchHandlers {
  const { repository } = dependencies
  const respondWith = (action: (call: Call, key: VirtualKey) => Promise<Batch>): Handler =>
    requireKey(dependencies, async (call, key) =>
      sendWithRateStatus(call, key, dependencies.services, writeBatchWithUrl(await action(call, key))),
    )
  return {
    create: respondWith((call, key) => create(dependencies, call, key)),
    list: requireKey(dependencies, (call, key) => sendList(dependencies, call, key)),
    read: respondWith((call, key) => repository.read(key.id, pathId(call))),
    cancel: respondWith((call, key) => cancel(dependencies, call, key)),
    results: requireKey(dependencies, (call, key) => sendResults(dependencies, call, key)),
    remove: requireKey(dependencies, async (call, key) => {
      await repository.remove(key.id, pathId(call))
      return sendWithRateStatus(call, key, dependencies.services, { id: pathId(call), type: 'message_batch_deleted' })
    }),
  }
}

function requireKey(
  dependencies: BatchRouteDependencies,
  handle: (call: Call, key: VirtualKey) => Promise<void>,
): Handler {
  return async (call) => handle(call, await findCallerKey(call.request, dependencies.services))
}

async function create(dependencies: BatchRouteDependencies, call: Call, key: VirtualKey): Promise<Batch> {
  const { bodyLimits, bodyCapacity } = dependencies.services
  const { request } = call
  readSteering(request, { canExplain: false })
  checkJsonHeaders(request, bodyLimits.maxBytes)
  const capacity = await bodyCapacity.acquire(key.id, expectedBytes(request, bodyLimits.maxBytes), new Cancellation())
  try {
    const bytes = await request.body(bodyLimits)
    capacity.resize(bytes.byteLength)
    return await storeBatch(dependencies, call, { key, bytes })
  } finally {
    capacity.release()
  }
}

async function storeBatch(
  dependencies: BatchRouteDependencies,
  { request }: Call,
  { key, bytes }: { readonly key: VirtualKey; readonly bytes: Uint8Array },
): Promise<Batch> {
  const { limits, runtime } = dependencies.services
  // An item wraps its request, which adds one level of nesting.
  const itemLimits = { ...parseLimits(limits), depth: limits.jsonDepth + 1, textBytes: limits.promptBytes }
  const requests = await readBatchRequests(bytes, {
    parse: async (item) => {
      const parsed = await parseBodyInSteps(item, itemLimits, { pause: yieldToEventLoop, uuid: runtime.uuid })
      return { body: parsed.body, text: jsonTextOf(item, parsed) }
    },
    pause: yieldToEventLoop,
  })
  await reserveOneRequest(dependencies.services.ledger, key)
  const batch = await dependencies.repository.create({ keyId: key.id, headers: itemHeaders(request) }, requests)
  dependencies.wake(key.id)
  return batch
}

/** Request headers that apply to each item of the batch. */
const ITEM_HEADERS = [
  'anthropic-version',
  'anthropic-beta',
  'cache-control',
  'x-svc-cache-threshold',
  'x-savings-level',
  'x-vanishing-context',
  'x-svc-rlm',
]
/** Maximum length of an item header, in characters. Longer headers are ignored. */
const MAX_HEADER_LENGTH = 1000

function itemHeaders(request: HttpRequest): Record<string, string> {
  return Object.fromEntries(
    ITEM_HEADERS.flatMap((name) => {
      const value = request.header(name)
      return value === undefined || value.length > MAX_HEADER_LENGTH ? [] : [[name, value]]
    }),
  )
}

async function cancel(dependencies: BatchRouteDependencies, call: Call, key: VirtualKey): Promise<Batch> {
  const batch = await dependencies.repository.cancel(key.id, pathId(call))
  dependencies.wake(key.id)
  return batch
}

async function sendList(dependencies: BatchRouteDependencies, call: Call, key: VirtualKey): Promise<void> {
  const { batches, hasMore } = await dependencies.repository.page(key.id, parsePageQuery(call.query))
  return sendWithRateStatus(call, key, dependencies.services, {
    data: batches.map(writeBatchWithUrl),
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

async function sendResults(dependencies: BatchRouteDependencies, call: Call, key: VirtualKey): Promise<void> {
  const batch = await dependencies.repository.read(key.id, pathId(call))
  if (batch.state !== 'ended') throw notEndedError('its results cannot be read')
  if (batch.archivedAt !== undefined) {
    throw new GatewayError('not-found', 'The results of this message batch were deleted after 29 days.')
  }
  const headers = baseHeaders(call.id, await dependencies.services.ledger.status(key))
  call.sink.begin(200, { ...headers, 'content-type': 'application/x-jsonl', 'cache-control': 'no-store' })
  await sendLines(call, dependencies.repository.results(batch), dependencies.services)
}

/** Writes lines with backpressure. Disconnects a caller that reads no data for `timeouts.total`. */
async function sendLines(
  { request, sink }: Call,
  lines: AsyncGenerator<string, void, undefined>,
  { runtime, timeouts }: Pick<Services, 'runtime' | 'timeouts'>,
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
    const cancel = runtime.after(timeouts.total, disconnect)
    await new Promise<void>((resolve) => (wake = resolve))
    cancel()
  }
  try {
    for await (const text of lines) {
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
 * The URL of the results is a path, which the official clients resolve against their base URL. The public base URL is
 * unknown, because proxies may strip a prefix, terminate TLS or change the host.
 */
function writeBatchWithUrl(batch: Batch): JsonObject {
  return writeBatch(batch, `${PATH}/${batch.id}/results`)
}
