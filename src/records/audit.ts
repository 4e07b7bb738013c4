import type { FailureKind } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import { toCents, toDollars, ZERO } from '../core/money.ts'
import { isPromise, type MaybePromise } from '../core/maybe-promise.ts'
import type { LogEntry, NewLogEntry, SettledEntry, Store } from '../core/ports.ts'
import { quotaOf } from '../core/quotas.ts'
import { endingOf, shortened, tokensUsed, type Ending, type Finished } from './finished.ts'
import { guardSink, type Sink } from './guarded-sink.ts'

/** One use of a key. */
export interface AuditRecord {
  /** ISO 8601. */
  readonly timestamp: string
  /** null: the request carried no known key. */
  readonly key_id: string | null
  readonly model: string | null
  readonly tokens_used: number
  /** Billed money, rounded half up. */
  readonly cost_cents: number
  /** Billed money with six fraction digits. */
  readonly cost_usd: number
  readonly request_id: string
  readonly outcome: Ending
  readonly status: number
  readonly failure: FailureKind | null
}

export interface AuditQuery {
  /** @default all keys, and requests without one */
  readonly keyId?: string
  /** The first moment, inclusive, milliseconds since 1970. */
  readonly from?: number
  /** The last moment, exclusive. */
  readonly to?: number
  /** `next` of the page before. */
  readonly after?: string
  /** 1 to 1,000. @default 100 */
  readonly limit?: number
}

export interface AuditPage {
  /** In the order in which the requests ended. */
  readonly records: readonly AuditRecord[]
  /** Where the next page begins; absent on the last one. */
  readonly next?: string
}

/** Every use of a key, refused ones included, written down and never changed. */
export interface Audit {
  /** Never rejects: a record that the store or `onRecord` did not take is counted in `dropped`. */
  write(finished: Finished): MaybePromise<void>
  /** The entries that `write` would append, for a settlement to carry. `onRecord` gets the record at once. */
  entriesOf(finished: Finished): readonly SettledEntry[]
  read(query?: AuditQuery): Promise<AuditPage>
  dropped(): number
}

export interface AuditOptions {
  readonly store: Store
  /** How long records are kept, in milliseconds. @default as long as the store keeps them */
  readonly keepMs?: number
  /** Receives each record too, for an archive of the operator. Errors that it throws are counted in `dropped`. */
  readonly onRecord?: Sink<AuditRecord>
}

const ALL = 'audit'
const DEFAULT_LIMIT = 100
const MOST = 1_000

/** Each record is in the log of all keys and in that of its key, so that both are read without a search. */
export function createAudit({ store, keepMs, onRecord }: AuditOptions): Audit {
  const sink = guardSink(onRecord)
  let dropped = 0

  function write(finished: Finished): MaybePromise<void> {
    try {
      const appended = store.append(logsOf(finished), handOn(finished))
      return isPromise(appended) ? appended.catch(drop) : appended
    } catch {
      drop()
    }
  }

  function handOn(finished: Finished): NewLogEntry {
    const record = toRecord(finished)
    sink.hand(record)
    return entryOf(finished, record, keepMs)
  }

  function drop(): void {
    dropped += 1
  }

  /** `Object.assign` takes a tenth of the time of a spread with one more field. */
  function entriesOf(finished: Finished): readonly SettledEntry[] {
    const entry = handOn(finished)
    return logsOf(finished).map((log) => Object.assign({ log }, entry))
  }

  async function read({ keyId, limit = DEFAULT_LIMIT, ...range }: AuditQuery = {}): Promise<AuditPage> {
    const most = Math.min(MOST, Math.max(1, limit))
    const entries = await store.entries(keyId === undefined ? ALL : logOf(keyId), { ...range, limit: most + 1 })
    const shown = entries.slice(0, most)
    const records = shown.map(fromEntry).filter((record) => record !== undefined)
    const next = entries.length > most ? shown.at(-1)?.cursor : undefined
    return next === undefined ? { records } : { records, next }
  }

  return { write, entriesOf, read, dropped: () => dropped + sink.dropped() }
}

/**
 * Refused requests cost nothing: a key may send any number of them. Their records have a small quota of their own, so
 * that they replace neither records of other keys nor the billed records of the same key.
 */
function entryOf(finished: Finished, record: AuditRecord, keepMs: number | undefined): NewLogEntry {
  const { at, keyId, bill } = finished
  const kind = bill === undefined && record.outcome !== 'answered' ? 'audit-unbilled' : 'audit'
  return {
    at,
    value: JSON.stringify(record),
    quota: quotaOf(kind, keyId ?? ''),
    ...(keepMs !== undefined && { ttlMs: keepMs }),
  }
}

function logOf(keyId: string): string {
  return `${ALL}:${keyId}`
}

function logsOf({ keyId }: Finished): readonly string[] {
  return keyId === undefined ? [ALL] : [ALL, logOf(keyId)]
}

function toRecord(finished: Finished): AuditRecord {
  const billed = finished.bill?.billed ?? ZERO
  return {
    timestamp: new Date(finished.at).toISOString(),
    key_id: finished.keyId ?? null,
    model: shortened(finished.model),
    tokens_used: tokensUsed(finished),
    cost_cents: toCents(billed),
    cost_usd: toDollars(billed),
    request_id: finished.requestId,
    outcome: endingOf(finished),
    status: finished.status,
    failure: finished.failure ?? null,
  }
}

/** Entries under these names that `write` did not write are left out. */
function fromEntry(entry: LogEntry): AuditRecord | undefined {
  try {
    const value: unknown = JSON.parse(entry.value)
    return isAuditRecord(value) ? value : undefined
  } catch {
    return undefined
  }
}

function isAuditRecord(value: unknown): value is AuditRecord {
  return isJsonObject(value) && typeof value['timestamp'] === 'string'
}
