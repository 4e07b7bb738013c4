import { GatewayError } from '../core/errors.ts'
import type { JsonObject } from '../core/json.ts'
import type { Model } from '../core/model.ts'
import { mayUse } from '../governance/access.ts'
import { findCaller } from '../pipeline/authenticate.ts'
import type { Services } from '../pipeline/services.ts'
import { idOf, sendToKey, type Handler } from './endpoint.ts'

/** One model of the catalog. */
export interface Listed {
  /** `<provider>/<model_id>`, or an alias. */
  readonly name: string
  readonly provider: string
  readonly model: Model
}

const MAX_PAGE = 1000

/** GET /v1/models: the models that the calling key may use, in a form that both official clients can read. */
export function listModels(listed: readonly Listed[], services: Services): Handler {
  return async (call) => {
    const key = await findCaller(call.request, services)
    const visible = listed.filter((entry) => mayUse(key, entry.name))
    const page = pageOf(visible, call.query)
    return sendToKey(call, key, services, {
      object: 'list',
      data: page.entries.map(writeEntry),
      has_more: page.hasMore,
      first_id: page.entries[0]?.name ?? null,
      last_id: page.entries.at(-1)?.name ?? null,
    })
  }
}

/** GET /v1/models/{id}. The id may contain slashes. */
export function getModel(listed: readonly Listed[], services: Services): Handler {
  return async (call) => {
    const key = await findCaller(call.request, services)
    const name = idOf(call)
    const entry = listed.find((candidate) => candidate.name === name && mayUse(key, candidate.name))
    if (entry === undefined) {
      throw new GatewayError('invalid-model', 'This key has no such model. GET /v1/models lists its models.', {
        param: 'model',
      })
    }
    return sendToKey(call, key, services, writeEntry(entry))
  }
}

function writeEntry({ name, provider, model }: Listed): JsonObject {
  const created = model.created ?? 0
  return {
    id: name,
    object: 'model',
    type: 'model',
    created,
    created_at: new Date(created * 1000).toISOString(),
    owned_by: provider,
    display_name: model.displayName ?? model.id,
    context_window: model.contextWindow,
    max_output_tokens: model.maxOutputTokens,
  }
}

interface Page {
  readonly entries: readonly Listed[]
  readonly hasMore: boolean
}

/** Returns one page. Without `limit`, a page is the whole list, because clients of the chat format do not page. */
function pageOf(visible: readonly Listed[], query: URLSearchParams): Page {
  const limit = readLimit(query, MAX_PAGE)
  const after = query.get('after_id')
  const before = query.get('before_id')
  if (before !== null) {
    const end = Math.max(0, indexOf(visible, before, 'before_id'))
    return { entries: visible.slice(Math.max(0, end - limit), end), hasMore: end > limit }
  }
  const start = after === null ? 0 : indexOf(visible, after, 'after_id') + 1
  return { entries: visible.slice(start, start + limit), hasMore: visible.length > start + limit }
}

/** Returns `limit` of the query. Throws if it is not a whole number from 1 to 1,000. */
export function readLimit(query: URLSearchParams, fallback: number): number {
  const limit = query.has('limit') ? Number(query.get('limit')) : fallback
  if (Number.isInteger(limit) && limit >= 1 && limit <= MAX_PAGE) return limit
  throw new GatewayError('invalid-request', `limit: expected a whole number from 1 to ${MAX_PAGE}.`, {
    param: 'limit',
  })
}

function indexOf(visible: readonly Listed[], id: string, param: string): number {
  const index = visible.findIndex((entry) => entry.name === id)
  if (index >= 0) return index
  throw new GatewayError('invalid-request', `${param}: expected the id of a model in this list.`, { param })
}
