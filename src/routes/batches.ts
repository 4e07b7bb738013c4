import { isBatchId, writeBatch, type Batch } from '../batches/batch.ts'
import { notEnded, type BatchBook, type BatchQuery } from '../batches/batch-book.ts'
import { readBatchRequests } from '../batches/batch-requests.ts'
import { GatewayError } from '../core/errors.ts'
import type { JsonObject } from '../core/json.ts'
import { parseBodyInTurns } from '../formats/parse-body.ts'
import { takeRequest } from '../governance/places.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import { readBody } from '../http/body.ts'
import { findCaller } from '../pipeline/admit.ts'
import { baseHead, jsonResponse } from '../pipeline/head.ts'
import { readSteering } from '../pipeline/read-steering.ts'
import type { Parts } from '../pipeline/stages.ts'
import { parseLimits } from '../pipeline/understand.ts'
import { breathe } from '../tokens/breathe.ts'
import type { Call, Handler } from './endpoint.ts'

export interface BatchRouteParts {
  readonly book: BatchBook
  /** Called when there is work for the batches of a key. */
  readonly wake: (keyId: string) => void
  readonly line: Pick<Parts, 'findKey' | 'ledger' | 'limits' | 'runtime'>
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

function withKey(parts: BatchRouteParts, handle: (call: Call, key: VirtualKey) => Promise<Response>): Handler {
  return async (call) => handle(call, await findCaller(call.request.headers, parts.line))
}

function idOf(call: Call): string {
  return call.variables['id'] ?? ''
}

async function create(parts: BatchRouteParts, call: Call, key: VirtualKey): Promise<Batch> {
  const { limits, runtime } = parts.line
  const { headers } = call.request
  readSteering(headers, { canExplain: false })
  const bytes = await readBody(call.request, {
    maxBytes: limits.bodyBytes,
    readMs: limits.bodyReadMs,
    after: runtime.after,
  })
  // Each item is a request of its own, within an object that names it.
  const itemLimits = { ...parseLimits(limits), depth: limits.jsonDepth + 1, textBytes: limits.promptBytes }
  const requests = await readBatchRequests(bytes, {
    parse: (part) => parseBodyInTurns(part, itemLimits, breathe),
    pause: breathe,
  })
  await takeRequest(parts.line.ledger, key)
  const batch = await parts.book.create({ keyId: key.id, headers: kept(headers) }, requests)
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
const LONGEST_HEADER = 1000

function kept(headers: Headers): Record<string, string> {
  return Object.fromEntries(
    KEPT_HEADERS.flatMap((name) => {
      const value = headers.get(name)
      return value === null || value.length > LONGEST_HEADER ? [] : [[name, value]]
    }),
  )
}

async function cancel(parts: BatchRouteParts, call: Call, key: VirtualKey): Promise<Batch> {
  const batch = await parts.book.cancel(key.id, idOf(call))
  parts.wake(key.id)
  return batch
}

async function list(parts: BatchRouteParts, call: Call, key: VirtualKey): Promise<Response> {
  const { batches, hasMore } = await parts.book.page(key.id, readQuery(call.url.searchParams))
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
    throw new GatewayError('invalid-request', `limit must be a whole number from 1 to ${GREATEST_PAGE}.`, {
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
  throw new GatewayError('invalid-request', `${param} is no id of a message batch.`, { param })
}

/** Lines of JSON, read and sent a page at a time, as fast as the caller takes them. */
async function results(parts: BatchRouteParts, call: Call, key: VirtualKey): Promise<Response> {
  const batch = await parts.book.read(key.id, idOf(call))
  if (batch.state !== 'ended') throw notEnded('read')
  if (batch.archivedAt !== undefined) {
    throw new GatewayError('not-found', 'The results of this message batch were kept for 29 days and are deleted.')
  }
  const lines = parts.book.results(batch)
  const encoder = new TextEncoder()
  const body = new ReadableStream<Uint8Array>({
    pull: async (controller) => {
      const { value, done } = await lines.next()
      if (done === true) controller.close()
      else controller.enqueue(encoder.encode(value))
    },
    cancel: async () => {
      await lines.return()
    },
  })
  const head = baseHead(call.id, await parts.line.ledger.status(key))
  return new Response(body, {
    status: 200,
    headers: { ...head, 'content-type': 'application/x-jsonl', 'cache-control': 'no-store' },
  })
}

async function answer(parts: BatchRouteParts, call: Call, key: VirtualKey, body: JsonObject): Promise<Response> {
  return jsonResponse(200, baseHead(call.id, await parts.line.ledger.status(key)), JSON.stringify(body))
}

/**
 * The official clients resolve a path against their base URL. Only they know it whole: proxies and frameworks may strip a
 * prefix, end TLS or change the host before the request arrives here.
 */
function shown(batch: Batch): JsonObject {
  return writeBatch(batch, `${PATH}/${batch.id}/results`)
}
