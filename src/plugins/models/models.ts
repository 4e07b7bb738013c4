import type { Route } from '../../core/ports.ts'
import type { Endpoint } from '../../http/router.ts'
import { GatewayError } from '../../core/errors.ts'
import type { JsonObject } from '../../core/json.ts'
import type { Model } from '../../core/ports.ts'
import { mayUse, type VirtualKey } from '../../governance/virtual-key.ts'
import { findCaller } from '../../kernel/authenticate.ts'
import type { Services } from '../../kernel/services.ts'
import { type Handler, pathId } from '../../kernel/call.ts'
import { MAX_PAGE_SIZE, readLimit } from '../../http/page-limit.ts'
import { sendWithRateStatus } from '../../kernel/endpoint-responses.ts'

/** A model with the name under which it is listed. */
export type ListedRoute = Route & { readonly name: string }

interface ListedModel {
  /** `<provider>/<model_id>`, or an alias. */
  readonly name: string
  readonly provider: string
  readonly model: Model
}

function listModels(models: readonly ListedModel[], services: Services): Handler {
  return async (call) => {
    const caller = await findCaller(call, services)
    const { key } = caller
    const visible = models.filter((entry) => mayList(key, entry))
    const page = pageOf(visible, call.query)
    return sendWithRateStatus(call, caller, services, {
      object: 'list',
      data: page.entries.map(writeModel),
      has_more: page.hasMore,
      first_id: page.entries[0]?.name ?? null,
      last_id: page.entries.at(-1)?.name ?? null,
    })
  }
}

function getModel(models: readonly ListedModel[], services: Services): Handler {
  return async (call) => {
    const caller = await findCaller(call, services)
    const { key } = caller
    const name = pathId(call)
    const listed = models.find((candidate) => candidate.name === name && mayList(key, candidate))
    const entry = listed ?? findUnlisted(name, key, services)
    if (entry === undefined) {
      throw new GatewayError(
        'invalid-model',
        'The model does not exist, or this key may not use it. GET /v1/models lists the models of this key.',
        { param: 'model' },
      )
    }
    return sendWithRateStatus(call, caller, services, writeModel(entry))
  }
}

/** A request may also name a model without its provider, with another date, or one that only the vendor knows. */
function findUnlisted(name: string, key: VirtualKey, { resolve }: Services): ListedModel | undefined {
  try {
    return resolve(name, key)
      .routes.map(({ provider, model }) => ({ name, provider: provider.name, model }))
      .find((entry) => mayList(key, entry))
  } catch (error) {
    if (GatewayError.is(error) && error.kind !== 'internal') return undefined
    throw error
  }
}

function mayList(key: VirtualKey, { name, provider, model }: ListedModel): boolean {
  return mayUse(key, name, [`${provider}/${model.id}`])
}

function writeModel({ name, provider, model }: ListedModel): JsonObject {
  const created = model.created ?? 0
  return {
    id: name,
    object: 'model',
    type: 'model',
    created,
    created_at: new Date(created * 1000).toISOString(),
    owned_by: provider,
    display_name: model.displayName ?? model.id,
    context_window: model.contextWindowTokens,
    max_output_tokens: model.maxOutputTokens,
  }
}

/** The default limit is high, because clients of the chat format do not paginate. */
function pageOf(
  visible: readonly ListedModel[],
  query: URLSearchParams,
): { readonly entries: readonly ListedModel[]; readonly hasMore: boolean } {
  const limit = readLimit(query, MAX_PAGE_SIZE)
  const after = query.get('after_id')
  const before = query.get('before_id')
  if (before !== null) {
    const end = Math.max(0, indexOf(visible, before, 'before_id'))
    return { entries: visible.slice(Math.max(0, end - limit), end), hasMore: end > limit }
  }
  const start = after === null ? 0 : indexOf(visible, after, 'after_id') + 1
  return { entries: visible.slice(start, start + limit), hasMore: visible.length > start + limit }
}

function indexOf(visible: readonly ListedModel[], id: string, param: string): number {
  const index = visible.findIndex((entry) => entry.name === id)
  if (index >= 0) return index
  throw new GatewayError('invalid-request', `${param}: expected the id of a model in this list.`, { param })
}

export function modelEndpoints(routes: readonly ListedRoute[], services: Services): readonly Endpoint<Handler>[] {
  const models = routes.map((route) => ({ ...route, provider: route.provider.name }))
  return [
    { method: 'GET', path: '/v1/models', handle: listModels(models, services) },
    { method: 'GET', path: '/v1/models/*id', handle: getModel(models, services) },
  ]
}
