import { checkOptions, expects, integerFrom, optionsOf } from '../../core/check-options.ts'
import { fromWire, type WireForm } from '../../core/field-names.ts'
import { isJsonObject, parseJson } from '../../core/json.ts'
import type { Store } from '../../core/store.ts'
import {
  ALL_KEYS_LOG,
  type AuditPage,
  type AuditQuery,
  logOf,
  type StoredAuditRecord,
  type WireAuditRecord,
} from './audit.ts'

const isString = (value: unknown): boolean => typeof value === 'string'
const checkTime = expects('milliseconds since 1970', Number.isFinite)

const checkQuery = optionsOf(
  {
    keyId: expects('the id of a key as a string', isString),
    customer: expects('the id of a customer as a string', isString),
    user: expects('the id of a user as a string', isString),
    session: expects('the id of a session as a string', isString),
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

/** Records that a page with conditions on the context reads. */
const MAX_SCANNED = 2_000
const SCAN_SIZE = 500

export async function readPage(
  store: Pick<Store, 'entries'>,
  { keyId, limit = DEFAULT_PAGE_SIZE, customer, user, session, ...range }: AuditQuery = {},
): Promise<WireForm<AuditPage>> {
  const pageSize = Math.min(MAX_PAGE_SIZE, Math.max(1, limit))
  const log = keyId === undefined ? ALL_KEYS_LOG : logOf(keyId)
  const wanted = Object.entries({ customer, user, session }).filter(([, value]) => value !== undefined)
  const matches = (record: WireAuditRecord): boolean =>
    wanted.every(([name, value]) => record[name as 'customer'] === value)
  const chunkSize = wanted.length === 0 ? pageSize : SCAN_SIZE
  const records: WireAuditRecord[] = []
  let { after } = range
  for (let scanned = 0; scanned < MAX_SCANNED; scanned += chunkSize) {
    const position = after === undefined ? {} : { after }
    const entries = await store.entries(log, { ...range, ...position, limit: chunkSize + 1 })
    for (const [index, { cursor, value }] of entries.slice(0, chunkSize).entries()) {
      after = cursor
      const record = parseRecord(value)
      if (record !== undefined && matches(record)) records.push(record)
      const isLast = index === entries.length - 1
      if (records.length === pageSize) return isLast ? { records } : { records, next: cursor }
    }
    if (entries.length <= chunkSize) return { records }
    // An unfiltered page may have an entry that cannot be read, and is not filled up.
    if (wanted.length === 0) break
  }
  return after === undefined ? { records } : { records, next: after }
}

function parseRecord(text: string): WireAuditRecord | undefined {
  const value = parseJson(text)
  return isStoredRecord(value) ? { ...NO_CONTEXT, ...value } : undefined
}

const NO_CONTEXT = { customer: null, user: null, session: null }

function isStoredRecord(value: unknown): value is StoredAuditRecord {
  return isJsonObject(value) && typeof value['timestamp'] === 'string'
}
