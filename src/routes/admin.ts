import type { BudgetDesk } from '../governance/budgets.ts'
import type { KeyDesk } from '../governance/keys.ts'
import type { RateLimitDesk } from '../governance/rate-limits.ts'
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

/** What the admin API hands on to: the same desks that `gateway.keys`, `gateway.budgets` … are. */
export interface AdminParts {
  readonly authorize: Authorize
  readonly keys: KeyDesk
  readonly budgets: BudgetDesk
  readonly rateLimits: RateLimitDesk
  readonly audit: Pick<Audit, 'read'>
  readonly metrics: MetricsReports
  readonly line: Pick<Services, 'findKey' | 'ledger' | 'limits' | 'bodyLimits' | 'runtime'>
}

/** Records that are created, shown, listed, changed and deleted by id. */
interface Desk {
  create(body: unknown): Promise<object>
  get(id: string): Promise<object>
  list(query: { readonly limit?: number; readonly after?: string }): Promise<object>
  update(id: string, change: unknown): Promise<object>
  delete(id: string): Promise<object>
}

const BASE = '/api/governance'

/** The paths of the admin API and the metrics. Nothing of them is looked at before the caller is known to be an admin. */
export function adminEndpoints(parts: AdminParts): readonly Endpoint<Handler>[] {
  const { keys } = parts
  const gate = gateOf(parts)
  const { shows } = gate
  return [
    { method: 'GET', path: `${BASE}/virtual-keys/limits`, handle: ownLimits(parts) },
    ...deskEndpoints(`${BASE}/virtual-keys`, keys, gate, parts.line),
    {
      method: 'GET',
      path: `${BASE}/virtual-keys/:id/usage`,
      handle: shows((call) => keys.usage(idOf(call))),
    },
    {
      method: 'GET',
      path: `${BASE}/virtual-keys/:id/rate-limit`,
      handle: shows((call) => keys.rateLimit(idOf(call))),
    },
    ...deskEndpoints(`${BASE}/budgets`, parts.budgets, gate, parts.line),
    ...deskEndpoints(`${BASE}/rate-limits`, parts.rateLimits, gate, parts.line),
    { method: 'GET', path: `${BASE}/audit`, handle: shows((call) => readAudit(call, parts.audit)) },
    { method: 'GET', path: '/metrics', handle: gate.admits(metrics(parts.metrics)) },
    { method: 'GET', path: '/metrics/cache', handle: shows(async () => parts.metrics.cache()) },
  ]
}

/** Lets only administrators through. */
interface Gate {
  readonly admits: (handle: Handler) => Handler
  /** Answers 200 with what is shown. */
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

/** The five ways to handle records of one kind. */
function deskEndpoints(path: string, desk: Desk, gate: Gate, line: AdminParts['line']): readonly Endpoint<Handler>[] {
  const { admits, shows } = gate
  const create = async (call: Call): Promise<void> =>
    sendAdmin(call, 201, await desk.create(await readAdminBody(call, line)))
  const update = async (call: Call): Promise<object> => desk.update(idOf(call), await readAdminBody(call, line))
  return [
    { method: 'POST', path, handle: admits(create) },
    { method: 'GET', path, handle: shows((call) => desk.list(pageOf(call))) },
    { method: 'GET', path: `${path}/:id`, handle: shows((call) => desk.get(idOf(call))) },
    { method: 'PUT', path: `${path}/:id`, handle: shows(update) },
    { method: 'DELETE', path: `${path}/:id`, handle: shows((call) => desk.delete(idOf(call))) },
  ]
}

/** The limits of the key that asks; it needs no admin. */
function ownLimits({ keys, line }: AdminParts): Handler {
  return async (call) => {
    const key = await findCaller(call.request, line)
    const headers = { ...adminHeaders(call), ...baseHeaders(call.id, await line.ledger.status(key)) }
    sendJson(call.sink, 200, headers, JSON.stringify(await keys.limits(key.id)))
  }
}

function sendAdmin(call: Call, status: number, body: object): void {
  sendJson(call.sink, status, adminHeaders(call), JSON.stringify(body))
}
