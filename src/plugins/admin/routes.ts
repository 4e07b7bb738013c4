import { GatewayError } from '../../core/errors.ts'
import type { JsonObject } from '../../core/json.ts'
import { parseBodyInSteps } from '../../formats/parse-body.ts'
import type { AdminRecords, WireRecords } from './admin-records.ts'
import { checkJsonHeaders } from '../../http/body.ts'
import type { Endpoint } from '../../http/router.ts'
import { parseLimits } from '../../kernel/parse-request.ts'
import type { Services } from '../../kernel/services.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'
import { parseDigits } from '../../governance/page-query.ts'
import { pathId, type Call, type Handler } from '../../kernel/call.ts'
import { findCallerKey } from '../../kernel/authenticate.ts'
import { baseHeaders, noStoreHeaders, sendJson } from '../../kernel/response-headers.ts'
import { createGate, type Gate } from '../../kernel/admin-access.ts'
import type { AdminOptions } from '../../kernel/admin-access.ts'

interface AdminDependencies {
  readonly records: () => Promise<AdminRecords>
  readonly gate: Gate
  readonly services: Services
}

type SelectRecords = (records: AdminRecords) => WireRecords<object, object>

const BASE = '/api/governance'

export function adminEndpoints(
  records: () => Promise<AdminRecords>,
  admin: AdminOptions | undefined,
  services: Services,
): readonly Endpoint<Handler>[] {
  const gate = createGate(admin, services)
  const dependencies = { records, gate, services }
  const { respondWith } = gate
  const keyReport = (name: string, report: 'usage' | 'rateLimit'): Endpoint<Handler> => ({
    method: 'GET',
    path: `${BASE}/virtual-keys/:id/${name}`,
    handle: respondWith(async (call) => (await records()).keys[report](pathId(call))),
  })
  return [
    { method: 'GET', path: `${BASE}/virtual-keys/limits`, handle: callerLimits(dependencies) },
    ...recordEndpoints(`${BASE}/virtual-keys`, ({ keys }) => keys, dependencies),
    keyReport('usage', 'usage'),
    keyReport('rate-limit', 'rateLimit'),
    ...recordEndpoints(`${BASE}/budgets`, ({ budgets }) => budgets, dependencies),
    ...recordEndpoints(`${BASE}/rate-limits`, ({ rateLimits }) => rateLimits, dependencies),
  ]
}

function recordEndpoints(
  path: string,
  select: SelectRecords,
  dependencies: AdminDependencies,
): readonly Endpoint<Handler>[] {
  const { respondWith } = dependencies.gate
  const selected = async (): Promise<WireRecords<object, object>> => select(await dependencies.records())
  const create = async (call: Call): Promise<object> => {
    const body = await readAdminBody(call, dependencies.services)
    return (await selected()).create(body)
  }
  const update = async (call: Call): Promise<object> => {
    const body = await readAdminBody(call, dependencies.services)
    return (await selected()).update(pathId(call), body)
  }
  return [
    { method: 'POST', path, handle: respondWith(create, 201) },
    { method: 'GET', path, handle: respondWith(async (call) => (await selected()).list(pageOptions(call))) },
    { method: 'GET', path: `${path}/:id`, handle: respondWith(async (call) => (await selected()).get(pathId(call))) },
    { method: 'PUT', path: `${path}/:id`, handle: respondWith(update) },
    {
      method: 'DELETE',
      path: `${path}/:id`,
      handle: respondWith(async (call) => (await selected()).delete(pathId(call))),
    },
  ]
}

/** Requires a virtual key, not the admin key. */
function callerLimits({ records, services }: AdminDependencies): Handler {
  return async (call) => {
    const key = await findCallerKey(call.request, services)
    const headers = { ...noStoreHeaders(call), ...baseHeaders(call.id, await services.ledger.status(key)) }
    sendJson(call.sink, 200, headers, JSON.stringify(await (await records()).keys.limits(key.id)))
  }
}

async function readAdminBody(
  { request }: Call,
  { bodyLimits, limits, runtime }: AdminDependencies['services'],
): Promise<JsonObject> {
  checkJsonHeaders(request, bodyLimits.maxBytes)
  const bytes = await request.body(bodyLimits)
  try {
    const { body } = await parseBodyInSteps(bytes, parseLimits(limits), { pause: yieldToEventLoop, uuid: runtime.uuid })
    return Object.fromEntries(Object.entries(body).filter(([name]) => !IGNORED_FIELDS.has(name)))
  } catch (error) {
    if (GatewayError.is(error) && error.kind === 'invalid-request') {
      throw new GatewayError('invalid-admin-request', error.message, error.details)
    }
    throw error
  }
}

/** Clients may send back a created key with its `value`, but a secret cannot be chosen over HTTP. */
const IGNORED_FIELDS: ReadonlySet<string> = new Set(['__proto__', 'value'])

function pageOptions({ query }: Call): { readonly limit?: number; readonly after?: string } {
  const limit = query.get('limit')
  const after = query.get('after')
  return { ...(limit !== null && { limit: parseDigits(limit) }), ...(after !== null && { after }) }
}
