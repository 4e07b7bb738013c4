import { toWire } from '../core/field-names.ts'
import type { AdminRecords, WireRecords } from '../governance/admin-records.ts'
import type { Endpoint } from '../http/router.ts'
import { findCaller } from '../pipeline/authenticate.ts'
import { baseHeaders, sendJson } from '../pipeline/head.ts'
import type { Services } from '../pipeline/services.ts'
import type { Audit } from '../records/audit.ts'
import type { Authorize } from './authorize.ts'
import { adminHeaders, IncomingCall, type Call, type Handler } from './endpoint.ts'
import { idOf, pageOf, readAdminBody } from './admin-input.ts'
import { readAudit } from './audit.ts'
import { metrics, type MetricsReports } from './metrics.ts'

/** Parts of the admin API. */
export interface AdminParts {
  readonly authorize: Authorize
  /** Resolves when the configured keys, budgets and rate limits are stored. */
  readonly records: () => Promise<AdminRecords>
  readonly audit: Pick<Audit, 'read'>
  readonly metrics: MetricsReports
  readonly line: Pick<Services, 'findKey' | 'ledger' | 'limits' | 'bodyLimits' | 'runtime'>
}

/** The records of one kind. */
type Kind = (records: AdminRecords) => WireRecords<object, object>

const BASE = '/api/governance'

/** The paths of the admin API and the metrics. The caller is authorized before any part of the request is read. */
export function adminEndpoints(parts: AdminParts): readonly Endpoint<Handler>[] {
  const { records } = parts
  const gate = gateOf(parts)
  const { shows } = gate
  return [
    { method: 'GET', path: `${BASE}/virtual-keys/limits`, handle: ownLimits(parts) },
    ...recordEndpoints(`${BASE}/virtual-keys`, ({ keys }) => keys, parts),
    {
      method: 'GET',
      path: `${BASE}/virtual-keys/:id/usage`,
      handle: shows(async (call) => (await records()).keys.usage(idOf(call))),
    },
    {
      method: 'GET',
      path: `${BASE}/virtual-keys/:id/rate-limit`,
      handle: shows(async (call) => (await records()).keys.rateLimit(idOf(call))),
    },
    ...recordEndpoints(`${BASE}/budgets`, ({ budgets }) => budgets, parts),
    ...recordEndpoints(`${BASE}/rate-limits`, ({ rateLimits }) => rateLimits, parts),
    { method: 'GET', path: `${BASE}/audit`, handle: shows((call) => readAudit(call, parts.audit)) },
    { method: 'GET', path: '/metrics', handle: gate.admits(metrics(parts.metrics)) },
    { method: 'GET', path: '/metrics/cache', handle: shows(async () => Object(toWire(parts.metrics.cache()))) },
  ]
}

/** Refuses requests without admin access. */
interface Gate {
  readonly admits: (handle: Handler) => Handler
  /** Answers 200 with the returned value. */
  readonly shows: (show: (call: Call) => Promise<object>) => Handler
}

function gateOf({ authorize, line }: Pick<AdminParts, 'authorize' | 'line'>): Gate {
  const admits: Gate['admits'] = (handle) => async (call) => {
    const { id, startedAt, sink, variables } = call
    const request = await authorize(call.request, line.bodyLimits)
    return handle(new IncomingCall({ id, startedAt, request, sink }, variables))
  }
  return { admits, shows: (show) => admits(async (call) => sendAdmin(call, 200, await show(call))) }
}

/** The five operations on records of one kind. */
function recordEndpoints(path: string, kind: Kind, parts: AdminParts): readonly Endpoint<Handler>[] {
  const { admits, shows } = gateOf(parts)
  const methods = async (): Promise<WireRecords<object, object>> => kind(await parts.records())
  const create = async (call: Call): Promise<void> => {
    const body = await readAdminBody(call, parts.line)
    sendAdmin(call, 201, await (await methods()).create(body))
  }
  const update = async (call: Call): Promise<object> => {
    const body = await readAdminBody(call, parts.line)
    return (await methods()).update(idOf(call), body)
  }
  return [
    { method: 'POST', path, handle: admits(create) },
    { method: 'GET', path, handle: shows(async (call) => (await methods()).list(pageOf(call))) },
    { method: 'GET', path: `${path}/:id`, handle: shows(async (call) => (await methods()).get(idOf(call))) },
    { method: 'PUT', path: `${path}/:id`, handle: shows(update) },
    { method: 'DELETE', path: `${path}/:id`, handle: shows(async (call) => (await methods()).delete(idOf(call))) },
  ]
}

/** The limits of the calling key, which needs no admin key. */
function ownLimits({ records, line }: AdminParts): Handler {
  return async (call) => {
    const key = await findCaller(call.request, line)
    const headers = { ...adminHeaders(call), ...baseHeaders(call.id, await line.ledger.status(key)) }
    sendJson(call.sink, 200, headers, JSON.stringify(await (await records()).keys.limits(key.id)))
  }
}

function sendAdmin(call: Call, status: number, body: object): void {
  sendJson(call.sink, status, adminHeaders(call), JSON.stringify(body))
}
