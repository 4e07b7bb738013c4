import { isBatchId, writeBatch, type Batch } from '../batches/batch.ts'
import { notEnded, type BatchRepository, type BatchQuery } from '../batches/batch-repository.ts'
import { readBatchRequests } from '../batches/batch-requests.ts'
import { Cancellation } from '../core/cancellation.ts'
import { GatewayError } from '../core/errors.ts'
import type { JsonObject } from '../core/json.ts'
import { parseBodyInTurns, textOf } from '../formats/parse-body.ts'
import { takeRequest } from '../governance/places.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import { headersOf, type HttpRequest } from '../core/http.ts'
import { checkJsonHeaders, expectedBytes } from '../http/body.ts'
import { findCaller } from '../pipeline/authenticate.ts'
import { baseHeaders, sendJson } from '../pipeline/head.ts'
import type { Services } from '../pipeline/services.ts'
import { parseLimits } from '../pipeline/parse-request.ts'
import { readSteering } from '../pipeline/read-steering.ts'
import { yieldToEventLoop } from '../tokens/yield.ts'
import type { Call, Handler } from './endpoint.ts'

export interface BatchRouteParts {
  readonly book: BatchRepository
  /** Called when there is work for the batches of a key. */
  readonly wake: (keyId: string) => void
  readonly line: Pick<Services, 'findKey' | 'ledger' | 'limits' | 'bodyLimits' | 'bodyRoom' | 'runtime' | 'timeouts'>
}

const PATH = '/v1/messages/batches'
const DEFAULT_PAGE = 20
const GREATEST_PAGE = 1000

/** The handlers of the batches' paths. */
export interface BatchHandlers {
  readonly create: Handler
  readonly list: Handler
  readonly read: Handler
  readonly cancel: Handler
  readonly results: Handler
  readonly remove: Handler
}

/** Message batches as the message format has them. Every path knows only the batches of the calling key. */
export function batchHandlers(parts: BatchRouteParts): BatchHandlers {
  const { book } = parts
  const shows = (show: (call: Call, key: VirtualKey) => Promise<Batch>): Handler =>
    withKey(parts, async (call, key) => answer(parts, call, key, shown(await show(call, key))))
  return {
    create: shows((call, key) => create(parts, call, key)),
    list: withKey(parts, (call, key) => list(parts, call, key)),
    read: shows((call, key) => book.read(key.id, idOf(call))),
    cancel: shows((call, key) => cancel(parts, call, key)),
    results: withKey(parts, (call, key) => results(parts, call, key)),
    remove: withKey(parts, async (call, key) => {
      await book.remove(key.id, idOf(call))
      return answer(parts, call, key, { id: idOf(call), type: 'message_batch_deleted' })
    }),
  }
}

function withKey(parts: BatchRouteParts, handle: (call: Call, key: VirtualKey) => Promise<void>): Handler {
  return async (call) => handle(call, await findCaller(call.request, parts.line))
}

function idOf(call: Call): string {
  return call.variables['id'] ?? ''
}

async function create(parts: BatchRouteParts, call: Call, key: VirtualKey): Promise<Batch> {
  const { bodyLimits, bodyRoom } = parts.line
  const { request } = call
  readSteering(headersOf(request), { canExplain: false })
  checkJsonHeaders(request, bodyLimits.maxBytes)
  const room = await bodyRoom.enter(key.id, expectedBytes(request, bodyLimits.maxBytes), new Cancellation())
  try {
    const bytes = await request.body(bodyLimits)
    room.resize(bytes.byteLength)
    return await store(parts, call, { key, bytes })
  } finally {
    room.leave()
  }
}

async function store(
  parts: BatchRouteParts,
  { request }: Call,
  { key, bytes }: { readonly key: VirtualKey; readonly bytes: Uint8Array },
): Promise<Batch> {
  const { limits, runtime } = parts.line
  // Each item is a request of its own, within an object that names it.
  const itemLimits = { ...parseLimits(limits), depth: limits.jsonDepth + 1, textBytes: limits.promptBytes }
  const requests = await readBatchRequests(bytes, {
    parse: async (part) => {
      const parsed = await parseBodyInTurns(part, itemLimits, { pause: yieldToEventLoop, uuid: runtime.uuid })
      return { body: parsed.body, text: textOf(part, parsed) }
    },
    pause: yieldToEventLoop,
  })
  await takeRequest(parts.line.ledger, key)
  const batch = await parts.book.create({ keyId: key.id, headers: kept(request) }, requests)
  parts.wake(key.id)
  return batch
}

/** What steers a message request, as if each item had been sent with it. */
const KEPT_HEADERS = [
  'anthropic-version',
  'anthropic-beta',
  'cache-control',
  'x-svc-cache-threshold',
  'x-savings-level',
  'x-vanishing-context',
  'x-svc-rlm',
]
const MAX_HEADER_LENGTH = 1000

function kept(request: HttpRequest): Record<string, string> {
  return Object.fromEntries(
    KEPT_HEADERS.flatMap((name) => {
      const value = request.header(name)
      return value === undefined || value.length > MAX_HEADER_LENGTH ? [] : [[name, value]]
    }),
  )
}

async function cancel(parts: BatchRouteParts, call: Call, key: VirtualKey): Promise<Batch> {
  const batch = await parts.book.cancel(key.id, idOf(call))
  parts.wake(key.id)
  return batch
}

async function list(parts: BatchRouteParts, call: Call, key: VirtualKey): Promise<void> {
  const { batches, hasMore } = await parts.book.page(key.id, readQuery(call.query))
  return answer(parts, call, key, {
    data: batches.map(shown),
    has_more: hasMore,
    first_id: batches[0]?.id ?? null,
    last_id: batches.at(-1)?.id ?? null,
  })
}

function readQuery(query: URLSearchParams): BatchQuery {
  const limit = query.has('limit') ? Number(query.get('limit')) : DEFAULT_PAGE
  if (!Number.isInteger(limit) || limit < 1 || limit > GREATEST_PAGE) {
    throw new GatewayError('invalid-request', `limit: expected a whole number from 1 to ${GREATEST_PAGE}.`, {
      param: 'limit',
    })
  }
  const after = readId(query, 'after_id')
  const before = readId(query, 'before_id')
  return { limit, ...(after !== undefined && { after }), ...(before !== undefined && { before }) }
}

function readId(query: URLSearchParams, param: string): string | undefined {
  const id = query.get(param)
  if (id === null || isBatchId(id)) return id ?? undefined
  throw new GatewayError('invalid-request', `${param}: expected the id of a message batch.`, { param })
}

/** Lines of JSON, read and sent a page at a time, as fast as the caller takes them. */
async function results(parts: BatchRouteParts, call: Call, key: VirtualKey): Promise<void> {
  const batch = await parts.book.read(key.id, idOf(call))
  if (batch.state !== 'ended') throw notEnded('read')
  if (batch.archivedAt !== undefined) {
    throw new GatewayError('not-found', 'The results of this message batch were kept for 29 days and are deleted.')
  }
  const headers = baseHeaders(call.id, await parts.line.ledger.status(key))
  call.sink.begin(200, { ...headers, 'content-type': 'application/x-jsonl', 'cache-control': 'no-store' })
  await sendLines(call, parts.book.results(batch), parts.line)
}

/** Draws the next lines when the caller has taken the ones before. One that takes nothing for `timeouts.total` is disconnected. */
async function sendLines(
  { request, sink }: Call,
  lines: AsyncGenerator<string, void, undefined>,
  { runtime, timeouts }: Pick<Services, 'runtime' | 'timeouts'>,
): Promise<void> {
  let wake: () => void = () => {}
  let hasLeft = false
  sink.onDrain(() => wake())
  const leave = (): void => {
    hasLeft = true
    wake()
  }
  request.onDisconnect(leave)
  const drained = async (): Promise<void> => {
    const cancel = runtime.after(timeouts.total, leave)
    await new Promise<void>((resolve) => (wake = resolve))
    cancel()
  }
  try {
    for await (const text of lines) {
      if (!sink.write(text) && !hasLeft) await drained()
      if (hasLeft) return sink.destroy()
    }
    sink.end()
  } catch {
    // Headers have left: a broken connection is the only sign that lines are missing.
    sink.destroy()
  }
}

async function answer(parts: BatchRouteParts, call: Call, key: VirtualKey, body: JsonObject): Promise<void> {
  sendJson(call.sink, 200, baseHeaders(call.id, await parts.line.ledger.status(key)), JSON.stringify(body))
}

/**
 * The official clients resolve a path against their base URL. Only they know it whole: proxies and frameworks may strip a
 * prefix, end TLS or change the host before the request arrives here.
 */
function shown(batch: Batch): JsonObject {
  return writeBatch(batch, `${PATH}/${batch.id}/results`)
}
