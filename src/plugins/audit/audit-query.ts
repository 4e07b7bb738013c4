import { checkOptions, expects, integerFrom, optionsOf } from '../../core/check-options.ts'
import { fromWire, type WireForm } from '../../core/field-names.ts'
import { isJsonObject, parseJson } from '../../core/json.ts'
import type { Store } from '../../core/store.ts'
import { ALL_KEYS_LOG, type AuditPage, type AuditQuery, logOf, type WireAuditRecord } from './audit.ts'

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
export async function readAudit(store: Pick<Store, 'entries'>, query: AuditQuery = {}): Promise<AuditPage> {
  checkOptions('audit.read', query, checkQuery)
  return fromWire(await readPage(store, query)) as AuditPage
}

const DEFAULT_PAGE_SIZE = 100
const MAX_PAGE_SIZE = 1_000

export async function readPage(
  store: Pick<Store, 'entries'>,
  { keyId, limit = DEFAULT_PAGE_SIZE, ...range }: AuditQuery = {},
): Promise<WireForm<AuditPage>> {
  const pageSize = Math.min(MAX_PAGE_SIZE, Math.max(1, limit))
  const log = keyId === undefined ? ALL_KEYS_LOG : logOf(keyId)
  const entries = await store.entries(log, { ...range, limit: pageSize + 1 })
  const page = entries.slice(0, pageSize)
  const records = page.map(({ value }) => parseJson(value)).filter(isAuditRecord)
  const next = entries.length > pageSize ? page.at(-1)?.cursor : undefined
  return next === undefined ? { records } : { records, next }
}

function isAuditRecord(value: unknown): value is WireAuditRecord {
  return isJsonObject(value) && typeof value['timestamp'] === 'string'
}
