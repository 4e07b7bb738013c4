import type { CallerContext } from '../../core/caller-context.ts'
import { isPromise, type MaybePromise } from '../../core/async.ts'
import type { FailureKind } from '../../core/errors.ts'
import type { WireForm } from '../../core/field-names.ts'
import { toCents, toDollars, ZERO } from '../../core/money.ts'
import { type NewLogEntry, type SettledEntry, type Store, quotaOf } from '../../core/store.ts'
import { type FinishedRequest, type FinalOutcome, outcomeOf, truncateName } from '../../kernel/finished-request.ts'

function tokensUsed({ bill }: FinishedRequest): number {
  return bill === undefined || bill.cache === 'HIT' ? 0 : bill.optimizedTokens + bill.completionTokens
}

/** The audit record of one request. */
export interface AuditRecord {
  /** When the request ended, in ISO 8601 format. */
  readonly timestamp: string
  /** Requests without a known key have no audit record. */
  readonly keyId: string | null
  /** Of the context of the request. null: it has none. */
  readonly customer: string | null
  readonly user: string | null
  readonly session: string | null
  /** Model name in the request, or its path if it has none. null: the request ended before its model was resolved. */
  readonly model: string | null
  /** Tokens of the sent prompt and the completion; 0 for a cache hit. */
  readonly tokensUsed: number
  /** Billed amount in cents, rounded half up. */
  readonly costCents: number
  /** Billed amount in dollars, with six decimal places. */
  readonly costUsd: number
  /** The response's `X-Request-Id`. Each attempt at a batch item has its own id. */
  readonly requestId: string
  readonly outcome: FinalOutcome
  /** The HTTP status of the response; 499 for the outcome `left`. */
  readonly status: number
  readonly failure: FailureKind | null
}

/** Filters for audit records. */
export interface AuditQuery {
  /** Id of a virtual key. @default all keys */
  readonly keyId?: string
  /**
   * With this, `user` or `session`, a page reads at most 2,000 records, so it may have fewer than `limit`, or none, although
   * it has a `next`. @default all customers
   */
  readonly customer?: string
  /** @default all users */
  readonly user?: string
  /** @default all sessions */
  readonly session?: string
  /** Start of the time range, inclusive, in milliseconds since 1970. @default the oldest record */
  readonly from?: number
  /** End of the time range, exclusive, in milliseconds since 1970. @default the newest record */
  readonly to?: number
  /** The `next` of the previous page. @default the first page */
  readonly after?: string
  /** Maximum number of records, 1 to 1,000. @default 100 */
  readonly limit?: number
}

/** One page of audit records. */
export interface AuditPage {
  /** In the order in which they were stored. */
  readonly records: readonly AuditRecord[]
  /** The `after` of the next page. Absent on the last page. */
  readonly next?: string
}

export type WireAuditRecord = WireForm<AuditRecord>

/** Most requests have no context, and JSON has no undefined fields. */
type WrittenAuditRecord = Omit<WireAuditRecord, ContextField> & Pick<CallerContext, ContextField>

export type StoredAuditRecord = Omit<WireAuditRecord, ContextField> & Partial<Pick<WireAuditRecord, ContextField>>

type ContextField = 'customer' | 'user' | 'session'

export interface Audit {
  /** Never rejects. A record that the store does not accept is counted in `dropped`. */
  write(finished: FinishedRequest): MaybePromise<void>
  /** Returns the entries that a settlement appends. */
  entriesOf(finished: FinishedRequest): readonly SettledEntry[]
  dropped(): number
}

export const ALL_KEYS_LOG = 'audit'

export function createAudit({ store }: { readonly store: Store }): Audit {
  let dropped = 0

  function write(finished: FinishedRequest): MaybePromise<void> {
    const countDropped = (): void => void (dropped += 1)
    try {
      const appended = store.append(logsOf(finished), entryOf(finished))
      return isPromise(appended) ? appended.catch(countDropped) : appended
    } catch {
      countDropped()
    }
  }

  function entriesOf(finished: FinishedRequest): readonly SettledEntry[] {
    const { at, value, quota } = entryOf(finished)
    return logsOf(finished).map((log) => ({ log, at, value, quota }))
  }

  return {
    write,
    entriesOf,
    dropped: () => dropped,
  }
}

/** Unbilled failures have a small quota. Otherwise, a key could evict its other records for free. */
function entryOf(finished: FinishedRequest): Required<Pick<NewLogEntry, 'at' | 'value' | 'quota'>> {
  const { at, keyId, bill } = finished
  const record = toRecord(finished)
  const kind = bill === undefined && record.outcome !== 'answered' ? 'audit-unbilled' : 'audit'
  return { at, value: JSON.stringify(record), quota: quotaOf(kind, keyId ?? '') }
}

export function logOf(keyId: string): string {
  return `${ALL_KEYS_LOG}:${keyId}`
}

function logsOf({ keyId }: FinishedRequest): readonly string[] {
  return keyId === undefined ? [ALL_KEYS_LOG] : [ALL_KEYS_LOG, logOf(keyId)]
}

function toRecord(finished: FinishedRequest): WrittenAuditRecord {
  const { customer, user, session } = finished.context ?? {}
  const billed = finished.bill?.billed ?? ZERO
  return {
    timestamp: toIsoTime(finished.at),
    key_id: finished.keyId ?? null,
    model: truncateName(finished.model),
    tokens_used: tokensUsed(finished),
    cost_cents: toCents(billed),
    cost_usd: toDollars(billed),
    request_id: finished.requestId,
    outcome: outcomeOf(finished),
    status: finished.status,
    failure: finished.failure ?? null,
    customer,
    user,
    session,
  }
}

/** The last formatted second. Many requests end within the same second, and formatting a date is slow. */
let lastSecond = { seconds: Number.NaN, text: '' }

function toIsoTime(at: number): string {
  const seconds = Math.floor(at / 1000)
  if (seconds !== lastSecond.seconds)
    lastSecond = { seconds, text: new Date(seconds * 1000).toISOString().slice(0, -4) }
  return `${lastSecond.text}${String(Math.floor(at) % 1000).padStart(3, '0')}Z`
}
