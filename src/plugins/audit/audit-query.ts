import { checkOptions, expects, integerFrom, optionsOf } from '../../core/errors.ts'
import { fromWire } from '../../core/field-names.ts'
import type { Audit, AuditPage, AuditQuery } from './audit.ts'

const isString = (value: unknown): boolean => typeof value === 'string'
const checkTime = expects('milliseconds since 1970', Number.isFinite)

const checkQuery = optionsOf(
  {
    keyId: expects('the id of a key as a string', isString),
    from: checkTime,
    to: checkTime,
    after: expects('the `next` of the previous page', isString),
    limit: integerFrom(1, 1000),
  },
  [],
  'an object, such as { limit: 100 }',
)

/** Reads a page for in-process callers. Throws `invalid-request` for an unknown or invalid filter. */
export async function readAudit(audit: Pick<Audit, 'read'>, query: AuditQuery = {}): Promise<AuditPage> {
  checkOptions('audit.read', query, checkQuery)
  return fromWire(await audit.read(query)) as AuditPage
}
