import { toWire } from '../../core/field-names.ts'
import { createAdminInput } from './parse-records.ts'
import type { AdminRecords, RecordMethods } from './admin-records.ts'
import type { Endpoint } from '../../http/router.ts'
import type { Services } from '../../kernel/services.ts'
import { parseDigits } from '../../governance/page-query.ts'
import { pathId, type Call, type Handler } from '../../kernel/call.ts'
import { findCaller } from '../../kernel/authenticate.ts'
import { baseHeaders, sendJson } from '../../kernel/response-headers.ts'
import { createGate, type Gate } from '../../kernel/admin-access.ts'
import type { AdminOptions } from '../../kernel/admin-access.ts'
import { inWireForm, readAdminBody } from '../../kernel/admin-body.ts'
import { noStoreHeaders } from '../../kernel/endpoint-responses.ts'

interface AdminDependencies {
  readonly records: () => Promise<AdminRecords>
  readonly gate: Gate
  readonly services: Services
}

interface RecordKind<NewRecord, Change> {
  readonly select: (records: AdminRecords) => RecordMethods<NewRecord, Change, object, object>
  readonly parseNew: (body: unknown) => NewRecord
  readonly parseChange: (body: unknown) => Change
}

const BASE = '/api/governance'

export function adminEndpoints(
  records: () => Promise<AdminRecords>,
  admin: AdminOptions | undefined,
  services: Services,
): readonly Endpoint<Handler>[] {
  const gate = createGate(admin, services)
  const dependencies = { records, gate, services }
  const input = createAdminInput('wire')
  const keyReport = (name: string, report: 'usage' | 'rateLimit'): Endpoint<Handler> => ({
    method: 'GET',
    path: `${BASE}/virtual-keys/:id/${name}`,
    handle: gate.respondWith(inWireForm(async (call) => (await records()).keys[report](pathId(call)))),
  })
  return [
    { method: 'GET', path: `${BASE}/virtual-keys/limits`, handle: callerLimits(dependencies) },
    ...recordEndpoints(
      `${BASE}/virtual-keys`,
      { select: ({ keys }) => keys, parseNew: input.parseNewKey, parseChange: input.parseKeyChange },
      dependencies,
    ),
    keyReport('usage', 'usage'),
    keyReport('rate-limit', 'rateLimit'),
    ...recordEndpoints(
      `${BASE}/budgets`,
      { select: ({ budgets }) => budgets, parseNew: input.parseNewBudget, parseChange: input.parseBudgetChange },
      dependencies,
    ),
    ...recordEndpoints(
      `${BASE}/rate-limits`,
      {
        select: ({ rateLimits }) => rateLimits,
        parseNew: input.parseNewRateLimit,
        parseChange: input.parseRateLimitChange,
      },
      dependencies,
    ),
  ]
}

function recordEndpoints<NewRecord, Change>(
  path: string,
  { select, parseNew, parseChange }: RecordKind<NewRecord, Change>,
  { records, gate, services }: AdminDependencies,
): readonly Endpoint<Handler>[] {
  const selected = async (): Promise<ReturnType<typeof select>> => select(await records())
  const create = async (call: Call): Promise<object> => {
    const body = await readAdminBody(call, services)
    const methods = await selected()
    const fields = parseNew(body)
    return inWireForm(() => methods.create(fields))(call)
  }
  const update = async (call: Call): Promise<object> => {
    const body = await readAdminBody(call, services)
    const methods = await selected()
    const change = parseChange(body)
    return inWireForm(() => methods.update(pathId(call), change))(call)
  }
  const respond = (action: (call: Call) => Promise<object>): Handler => gate.respondWith(inWireForm(action))
  return [
    { method: 'POST', path, handle: gate.respondWith(create, 201) },
    { method: 'GET', path, handle: respond(async (call) => (await selected()).list(pageOptions(call))) },
    { method: 'GET', path: `${path}/:id`, handle: respond(async (call) => (await selected()).get(pathId(call))) },
    { method: 'PUT', path: `${path}/:id`, handle: gate.respondWith(update) },
    { method: 'DELETE', path: `${path}/:id`, handle: respond(async (call) => (await selected()).delete(pathId(call))) },
  ]
}

/** Requires a virtual key, not the admin key. */
function callerLimits({ records, services }: AdminDependencies): Handler {
  return async (call) => {
    const caller = await findCaller(call, services)
    const headers = { ...noStoreHeaders(call), ...baseHeaders(call.id, await services.ledger.status(caller)) }
    sendJson(call.sink, 200, headers, JSON.stringify(toWire(await (await records()).keys.limits(caller.key.id))))
  }
}

function pageOptions({ query }: Call): { readonly limit?: number; readonly after?: string } {
  const limit = query.get('limit')
  const after = query.get('after')
  return { ...(limit !== null && { limit: parseDigits(limit) }), ...(after !== null && { after }) }
}
