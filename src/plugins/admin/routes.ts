import { GatewayError } from '../../core/errors.ts'
import { toWire } from '../../core/field-names.ts'
import type { BodyLimits, HttpRequest } from '../../core/http.ts'
import type { JsonObject } from '../../core/json.ts'
import type { Runtime } from '../../core/ports.ts'
import { parseBodyInSteps } from '../../formats/parse-body.ts'
import { parsePageQuery } from './admin-api.ts'
import { isTimestamp, TIMESTAMP_FORMAT } from './admin-input.ts'
import type { AdminRecords, WireRecords } from './admin-records.ts'
import { isSafeId } from '../../governance/stored-records.ts'
import { isSameSecret } from '../../governance/virtual-key.ts'
import { checkJsonHeaders } from '../../http/body.ts'
import type { Endpoint } from '../../http/router.ts'
import { lazyBody, shareBody, toWebRequest } from '../../http/web-handler.ts'
import { parseLimits } from '../../kernel/parse-request.ts'
import type { Services } from '../../kernel/services.ts'
import type { Audit, AuditQuery } from '../audit/audit.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'
import { noStoreHeaders, pathId, IncomingCall, type Call, type Handler } from '../../kernel/run.ts'
import { isTrueWithin } from '../../core/async.ts'
import { metrics, type MetricsReports } from '../metrics/prometheus.ts'
import { findCallerKey, readBearer } from '../../kernel/authenticate.ts'
import { baseHeaders, sendJson } from '../../kernel/response-headers.ts'

export interface AdminDependencies {
  readonly authorize: Authorize
  readonly records: () => Promise<AdminRecords>
  readonly audit: Pick<Audit, 'read'>
  readonly metrics: MetricsReports
  readonly services: Pick<Services, 'findKey' | 'ledger' | 'limits' | 'bodyLimits' | 'runtime'>
}

type SelectRecords = (records: AdminRecords) => WireRecords<object, object>

const BASE = '/api/governance'

export function adminEndpoints(dependencies: AdminDependencies): readonly Endpoint<Handler>[] {
  const { records } = dependencies
  const { requireAdmin, respondWith } = createGate(dependencies)
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
    { method: 'GET', path: `${BASE}/audit`, handle: respondWith((call) => readAudit(call, dependencies.audit)) },
    { method: 'GET', path: '/metrics', handle: requireAdmin(metrics(dependencies.metrics)) },
    {
      method: 'GET',
      path: '/metrics/cache',
      handle: respondWith(async () => Object(toWire(dependencies.metrics.cache()))),
    },
  ]
}

interface Gate {
  readonly requireAdmin: (handle: Handler) => Handler
  readonly respondWith: (action: (call: Call) => Promise<object>, status?: number) => Handler
}

function createGate({ authorize, services }: AdminDependencies): Gate {
  const requireAdmin: Gate['requireAdmin'] = (handle) => async (call) => {
    const { id, startedAt, sink, variables } = call
    const request = await authorize(call.request, services.bodyLimits)
    return handle(new IncomingCall({ id, startedAt, request, sink }, variables))
  }
  const respondWith: Gate['respondWith'] = (action, status = 200) =>
    requireAdmin(async (call) => sendJson(call.sink, status, noStoreHeaders(call), JSON.stringify(await action(call))))
  return { requireAdmin, respondWith }
}

function recordEndpoints(
  path: string,
  select: SelectRecords,
  dependencies: AdminDependencies,
): readonly Endpoint<Handler>[] {
  const { respondWith } = createGate(dependencies)
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

/** Accepts only digits, because `Number` would also accept an empty text, `1e2` and `0x10`. */
function parseDigits(text: string): number {
  return /^\d{1,6}$/.test(text) ? Number(text) : Number.NaN
}

async function readAudit({ query }: Call, audit: Pick<Audit, 'read'>): Promise<object> {
  const { records, next } = await audit.read(auditQuery(query))
  return { records, has_more: next !== undefined, next: next ?? null }
}

const CURSOR = /^[\x21-\x7e]{1,200}$/

function auditQuery(query: URLSearchParams): AuditQuery {
  const read = (name: string, expected: string, accepts: (text: string) => boolean): string | undefined => {
    const text = query.get(name) ?? undefined
    if (text === undefined || accepts(text)) return text
    throw new GatewayError('invalid-admin-request', `${name}: expected ${expected}.`, { param: name })
  }
  const keyId = read('key_id', 'the id of a virtual key', isSafeId)
  const after = read('after', 'the "next" value of the previous page', (text) => CURSOR.test(text))
  const limit = query.get('limit')
  const page = parsePageQuery(limit === null ? {} : { limit: parseDigits(limit) })
  const from = read('from', TIMESTAMP_FORMAT, isTimestamp)
  const to = read('to', TIMESTAMP_FORMAT, isTimestamp)
  return {
    ...page,
    ...(keyId !== undefined && { keyId }),
    ...(after !== undefined && { after }),
    ...(from !== undefined && { from: Date.parse(from) }),
    ...(to !== undefined && { to: Date.parse(to) }),
  }
}

/**
 * Authorization of the admin API and the metrics. If neither field is set, their endpoints respond with 401. Exception:
 * `GET …/virtual-keys/limits` always requires a virtual key instead.
 */
export interface AdminOptions {
  /** The admin key, sent as `Authorization: Bearer` or `x-admin-key`. At least 16 characters. */
  readonly key?: string | undefined
  /**
   * Returns true to permit the request. May read the body. For any other value, a rejection, or no result within 10
   * seconds, the gateway responds with 401. If `key` is also set, either check suffices.
   */
  readonly authorize?: (request: Request) => boolean | Promise<boolean>
}

/** Returns a request whose body can still be read. Throws `unauthenticated`. */
export type Authorize = (request: HttpRequest, limits: BodyLimits) => Promise<HttpRequest>

const AUTHORIZE_TIMEOUT_MS = 10_000

export function createAuthorize(admin: AdminOptions | undefined, runtime: Pick<Runtime, 'after'>): Authorize {
  const { key, authorize } = admin ?? {}
  return async (request, limits) => {
    if (key === undefined && authorize === undefined) {
      throw new GatewayError(
        'unauthenticated',
        'The admin API is not configured. Pass `admin: { key }` with at least 16 characters, or `admin: { authorize }`, to createGateway, and send the key as Authorization: Bearer or x-admin-key.',
        { code: 'admin_not_configured' },
      )
    }
    if (key !== undefined && hasAdminKey(request, key)) return request
    if (authorize !== undefined) {
      const shared = shareBody(request)
      if (
        await isTrueWithin(
          AUTHORIZE_TIMEOUT_MS,
          () => authorize(toWebRequest(shared, () => lazyBody(shared, limits))),
          runtime,
        )
      )
        return shared
    }
    throw new GatewayError(
      'unauthenticated',
      'This path requires admin credentials, such as the admin key sent as Authorization: Bearer or x-admin-key.',
      { code: 'invalid_admin_key' },
    )
  }
}

function hasAdminKey(request: HttpRequest, key: string): boolean {
  const secrets = [request.header('x-admin-key') ?? '', readBearer(request) ?? '']
  // Both headers are always compared. Otherwise, the response time would reveal which header matches.
  return secrets.filter((secret) => isSameSecret(secret, key)).length > 0
}
