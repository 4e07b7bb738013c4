import type { BudgetDesk } from '../governance/budgets.ts'
import type { KeyDesk } from '../governance/keys.ts'
import type { RateLimitDesk } from '../governance/rate-limits.ts'
import type { Endpoint } from '../http/router.ts'
import { findCaller } from '../pipeline/admit.ts'
import { baseHead, jsonResponse } from '../pipeline/head.ts'
import type { Parts } from '../pipeline/stages.ts'
import type { Audit } from '../records/audit.ts'
import { idOf, pageOf, readAdminBody } from './admin-input.ts'
import { readAudit } from './audit.ts'
import type { Authorize } from './authorize.ts'
import { adminHead, type Call, type Handler } from './endpoint.ts'
import { cacheMetrics, metrics, type MetricsReports } from './metrics.ts'

/** What the admin API hands on to: the same desks that `gateway.keys`, `gateway.budgets` … are. */
export interface AdminParts {
  readonly authorize: Authorize
  readonly keys: KeyDesk
  readonly budgets: BudgetDesk
  readonly rateLimits: RateLimitDesk
  readonly audit: Pick<Audit, 'read'>
  readonly metrics: MetricsReports
  readonly line: Pick<Parts, 'findKey' | 'ledger' | 'limits' | 'runtime'>
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
  const { authorize, keys, line } = parts
  const admin = (handle: (call: Call) => Promise<Response>): Handler => {
    return async (call) => {
      await authorize(call.request)
      return handle(call)
    }
  }
  const shows = (show: (call: Call) => Promise<object>): Handler =>
    admin(async (call) => adminResponse(call, 200, await show(call)))

  const desk = (path: string, records: Desk): readonly Endpoint<Handler>[] => [
    {
      method: 'POST',
      path,
      handle: admin(async (call) => adminResponse(call, 201, await records.create(await readAdminBody(call, line)))),
    },
    { method: 'GET', path, handle: shows((call) => records.list(pageOf(call))) },
    { method: 'GET', path: `${path}/:id`, handle: shows((call) => records.get(idOf(call))) },
    {
      method: 'PUT',
      path: `${path}/:id`,
      handle: shows(async (call) => records.update(idOf(call), await readAdminBody(call, line))),
    },
    { method: 'DELETE', path: `${path}/:id`, handle: shows((call) => records.delete(idOf(call))) },
  ]

  return [
    { method: 'GET', path: `${BASE}/virtual-keys/limits`, handle: ownLimits(parts) },
    ...desk(`${BASE}/virtual-keys`, keys),
    { method: 'GET', path: `${BASE}/virtual-keys/:id/usage`, handle: shows((call) => keys.usage(idOf(call))) },
    { method: 'GET', path: `${BASE}/virtual-keys/:id/rate-limit`, handle: shows((call) => keys.rateLimit(idOf(call))) },
    ...desk(`${BASE}/budgets`, parts.budgets),
    ...desk(`${BASE}/rate-limits`, parts.rateLimits),
    { method: 'GET', path: `${BASE}/audit`, handle: shows((call) => readAudit(call, parts.audit)) },
    { method: 'GET', path: '/metrics', handle: admin(metrics(parts.metrics)) },
    { method: 'GET', path: '/metrics/cache', handle: shows(cacheMetrics(parts.metrics)) },
  ]
}

/** The limits of the key that asks; it needs no admin. */
function ownLimits({ keys, line }: AdminParts): Handler {
  return async (call) => {
    const key = await findCaller(call.request.headers, line)
    const head = { ...adminHead(call), ...baseHead(call.id, await line.ledger.status(key)) }
    return jsonResponse(200, head, JSON.stringify(await keys.limits(key.id)))
  }
}

function adminResponse(call: Call, status: number, body: object): Response {
  return jsonResponse(status, adminHead(call), JSON.stringify(body))
}
