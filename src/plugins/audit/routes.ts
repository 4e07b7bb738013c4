import { GatewayError } from '../../core/errors.ts'
import { CONTEXT_ID_FORMAT, isContextId } from '../../governance/context.ts'
import { isSafeId } from '../../governance/record-table.ts'
import type { Store } from '../../core/store.ts'
import type { AuditQuery } from './audit.ts'
import { readAudit, readPage } from './audit-query.ts'

export { readAudit }
import type { Endpoint } from '../../http/router.ts'
import { type AdminOptions, createGate } from '../../kernel/admin-access.ts'
import type { Call, Handler } from '../../kernel/call.ts'
import type { Services } from '../../kernel/services.ts'
import { parseDigits } from '../../governance/page-query.ts'
import { isTimestamp, TIMESTAMP_FORMAT } from '../../governance/timestamps.ts'
import { parsePageQuery } from '../../governance/parse-page-query.ts'

export function auditEndpoints(
  store: Pick<Store, 'entries'>,
  admin: AdminOptions | undefined,
  services: Services,
): readonly Endpoint<Handler>[] {
  const { respondWith } = createGate(admin, services)
  return [{ method: 'GET', path: '/api/governance/audit', handle: respondWith((call) => sendPage(call, store)) }]
}

async function sendPage({ query }: Call, store: Pick<Store, 'entries'>): Promise<object> {
  const { records, next } = await readPage(store, auditQuery(query))
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
  const customer = read('customer', 'the id of a customer', isSafeId)
  const user = read('user', CONTEXT_ID_FORMAT, isContextId)
  const session = read('session', CONTEXT_ID_FORMAT, isContextId)
  const after = read('after', 'the "next" value of the previous page', (text) => CURSOR.test(text))
  const limit = query.get('limit')
  const page = parsePageQuery(limit === null ? {} : { limit: parseDigits(limit) })
  const from = read('from', TIMESTAMP_FORMAT, isTimestamp)
  const to = read('to', TIMESTAMP_FORMAT, isTimestamp)
  return {
    ...page,
    ...(keyId !== undefined && { keyId }),
    ...(customer !== undefined && { customer }),
    ...(user !== undefined && { user }),
    ...(session !== undefined && { session }),
    ...(after !== undefined && { after }),
    ...(from !== undefined && { from: Date.parse(from) }),
    ...(to !== undefined && { to: Date.parse(to) }),
  }
}
