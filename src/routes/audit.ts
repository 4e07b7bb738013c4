import { GatewayError } from '../core/errors.ts'
import type { Audit, AuditQuery } from '../records/audit.ts'
import { moment } from '../governance/field-schema.ts'
import { pageQuery } from '../governance/page-query.ts'
import { isSafeId } from '../governance/record-table.ts'
import { pageOf } from './admin-input.ts'
import type { Call } from './endpoint.ts'

const CURSOR = /^[\x21-\x7e]{1,200}$/

/** GET /api/governance/audit: `key_id`, `from` (inclusive), `to` (exclusive), `limit`, `after` (the last `next`). */
export async function readAudit(call: Call, audit: Pick<Audit, 'read'>): Promise<object> {
  const { records, next } = await audit.read(queryOf(call))
  return { records, has_more: next !== undefined, next: next ?? null }
}

function queryOf(call: Call): AuditQuery {
  const searchParams = call.query
  const keyId = searchParams.get('key_id') ?? undefined
  const after = searchParams.get('after') ?? undefined
  if (keyId !== undefined && !isSafeId(keyId)) throw wrong('key_id', 'the id of a virtual key')
  if (after !== undefined && !CURSOR.test(after)) throw wrong('after', 'the "next" of the previous page')
  const { limit } = pageQuery(withoutAfter(pageOf(call)))
  const from = readMoment(searchParams, 'from')
  const to = readMoment(searchParams, 'to')
  return {
    limit,
    ...(keyId !== undefined && { keyId }),
    ...(after !== undefined && { after }),
    ...(from !== undefined && { from }),
    ...(to !== undefined && { to }),
  }
}

function withoutAfter({ limit }: { readonly limit?: number }): { readonly limit?: number } {
  return limit === undefined ? {} : { limit }
}

function readMoment(query: URLSearchParams, name: string): number | undefined {
  const text = query.get(name)
  if (text === null) return undefined
  if (!moment.safeParse(text).success) throw wrong(name, 'a moment with a time zone such as 2027-01-31T00:00:00Z')
  return Date.parse(text)
}

function wrong(param: string, expected: string): GatewayError {
  return new GatewayError('invalid-admin-request', `${param}: expected ${expected}.`, { param })
}
