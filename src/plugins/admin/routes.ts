import { GatewayError } from '../../core/errors.ts'
import { toWire, toWireName } from '../../core/field-names.ts'
import type { JsonObject } from '../../core/json.ts'
import { parseBodyInSteps } from '../../formats/parse-body.ts'
import { createAdminInput } from './parse-records.ts'
import type { AdminRecords, RecordMethods } from './admin-records.ts'
import { checkJsonHeaders } from '../../http/body.ts'
import type { Endpoint } from '../../http/router.ts'
import type { Services } from '../../kernel/services.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'
import { parseDigits } from '../../governance/page-query.ts'
import { pathId, type Call, type Handler } from '../../kernel/call.ts'
import { findCaller } from '../../kernel/authenticate.ts'
import { baseHeaders, sendJson } from '../../kernel/response-headers.ts'
import { createGate, type Gate } from '../../kernel/admin-access.ts'
import type { AdminOptions } from '../../kernel/admin-access.ts'
import { parseLimits } from '../../kernel/limits.ts'
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

/** Renames the fields of the result, and the field that an error names. */
function inWireForm(action: (call: Call) => Promise<object>): (call: Call) => Promise<object> {
  return async (call) => {
    try {
      return Object(toWire(await action(call)))
    } catch (error) {
      throw GatewayError.is(error) ? withWireName(error) : error
    }
  }
}

/** Requires a virtual key, not the admin key. */
function callerLimits({ records, services }: AdminDependencies): Handler {
  return async (call) => {
    const caller = await findCaller(call, services)
    const headers = { ...noStoreHeaders(call), ...baseHeaders(call.id, await services.ledger.status(caller)) }
    sendJson(call.sink, 200, headers, JSON.stringify(toWire(await (await records()).keys.limits(caller.key.id))))
  }
}

function withWireName(error: GatewayError): GatewayError {
  const { kind, message, details } = error
  const { param = '' } = details
  const wireName = toWireName(param)
  return param === wireName
    ? error
    : new GatewayError(kind, message.replace(param, wireName), { ...details, param: wireName })
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
