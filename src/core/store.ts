import { GatewayError } from './errors.ts'
import type { MaybePromise } from './async.ts'

/** The amount that a request reserves from one counter: an integer number of requests, tokens or nano-dollars. */
export interface Claim {
  /** The name contains the start of the time window, so counters are never reset. */
  readonly counter: string
  readonly amount: number
  /** Maximum sum of the spent and held amounts of the counter, including this claim. */
  readonly max: number
  /** Time after which the counter may be deleted, in milliseconds since 1970. */
  readonly expiresAt: number
  /** True for a claim that may be granted in part. All elastic claims of a request have the same amount and grant. */
  readonly elastic?: boolean
}

/** The claims of one request, which are reserved together. */
export interface ReserveRequest {
  readonly reservationId: string
  readonly claims: readonly Claim[]
  /** Minimum grant of the elastic claims. @default their amount */
  readonly minGrant?: number
  /** Milliseconds after which an unsettled reservation is released, because a process may end before it settles. */
  readonly expiresAfterMs: number
}

/** `levels[i]` is the sum of the spent and held amounts of claim i's counter, including an accepted reservation. */
export type ReserveResult =
  | { readonly accepted: true; readonly granted: number; readonly levels: readonly number[] }
  | {
      readonly accepted: false
      /** The index of the first claim that exceeds its maximum. */
      readonly rejectedIndex: number
      readonly levels: readonly number[]
    }

/** An amount that a settlement adds to the spent amount of a counter. */
export interface Charge {
  readonly counter: string
  readonly amount: number
  readonly expiresAt: number
}

/** The name of what is counted together, because there are too many different values. */
export const OTHER = '(other)'

/**
 * Sums for reports and budgets. Each amount is added to the stored amount of the same name. A tally has 4,096 names. An
 * amount with a further name is added to `<first word> (other)`, or omitted if the name has no space.
 */
export interface Tally {
  readonly name: string
  readonly amounts: Readonly<Record<string, number>>
  /** @default never */
  readonly expiresAt?: number
}

/** The end of a reservation: what was spent, for reports and logs. */
export interface Settlement {
  readonly reservationId: string
  readonly charges: readonly Charge[]
  readonly tallies: readonly Tally[]
  /** Appended atomically with the charges. Entries larger than their quota are omitted. @default none */
  readonly entries?: readonly SettledEntry[]
}

/** A log entry that a settlement appends. */
export interface SettledEntry extends NewLogEntry {
  readonly log: string
}

/** The amounts of a counter. */
export interface Level {
  readonly spent: number
  readonly held: number
}

/** A stored entry of a log. */
export interface LogEntry {
  /** Position in the log. Later entries have greater cursors. */
  readonly cursor: string
  /** Milliseconds since 1970. */
  readonly at: number
  readonly value: string
}

/** Selects entries of a log. */
export interface LogQuery {
  /** Inclusive, in milliseconds since 1970. */
  readonly from?: number
  /** Exclusive, in milliseconds since 1970. */
  readonly to?: number
  readonly after?: string
  readonly limit: number
}

/**
 * The maximum storage that one virtual key may use for one kind of value. Either all values of a quota have `ttlMs`, or
 * none of them do. In a full quota, a new value with `ttlMs` replaces older values. A value is rejected with
 * `quota-exceeded` if it has `ttlMs` and is larger than the quota, or has no `ttlMs` and does not fit.
 */
export interface Quota {
  /** `<kind>:<key id>`. Quotas with the same name share one count. */
  readonly name: string
  /** Maximum number of values and log entries. */
  readonly maxEntries: number
  /**
   * Maximum total size of all keys and values, in bytes. A store may count up to 2 bytes per UTF-16 code unit and 256
   * bytes per value.
   */
  readonly maxBytes: number
}

/** Expiry and quota of a value. */
export interface WriteOptions {
  /** Milliseconds after which the value expires. @default it does not expire */
  readonly ttlMs?: number
  /** The quota against which the value counts until it is replaced or deleted, or expires. @default none */
  readonly quota?: Quota
  /** Writes even if the quota is full. For small values whose number is limited by other values. @default false */
  readonly mayExceedQuota?: boolean
}

/** An entry to append to a log. */
export interface NewLogEntry {
  readonly at: number
  readonly value: string
  readonly ttlMs?: number
  /** If the quota is full, its oldest entries in all logs are dropped. @default none */
  readonly quota?: Quota
}

/**
 * Stores keys, usage, logs and other values that outlive a request. `swap`, `reserve` and `settle` are atomic. The
 * contract suite (`testStore` from `sluice/testing`) specifies each method. A method rejects or throws if the storage is
 * unreachable.
 */
export interface Store {
  get(key: string): MaybePromise<string | undefined>
  set(key: string, value: string, options?: WriteOptions): Promise<void>
  /** Writes `value` if the current value is `expected`, and then returns true. Undefined is an absent value. */
  swap(key: string, expected: string | undefined, value: string | undefined, options?: WriteOptions): Promise<boolean>
  /** Returns true if the key existed. */
  delete(key: string): Promise<boolean>
  /** Returns at most `limit` keys with this prefix after `after`, in ascending order. */
  list(prefix: string, options: { readonly after?: string; readonly limit: number }): Promise<readonly string[]>
  /** Reserves all claims or none. */
  reserve(request: ReserveRequest): MaybePromise<ReserveResult>
  /**
   * Releases the reservation, and adds the charges, tallies and log entries. Returns false, without an effect, if the
   * reservation is unknown or already settled. An expired reservation can be settled for at least an hour.
   */
  settle(settlement: Settlement): MaybePromise<boolean>
  levels(counters: readonly string[]): MaybePromise<readonly Level[]>
  tallies(names: readonly string[]): MaybePromise<readonly Readonly<Record<string, number>>[]>
  /** Appends an entry to one or more logs, atomically. */
  append(log: string | readonly string[], entry: NewLogEntry): MaybePromise<void>
  /** Returns entries in the order in which they were appended. */
  entries(log: string, query: LogQuery): Promise<readonly LogEntry[]>
  /** True for a store in the memory of this process, whose calls need no deadline. @default false */
  readonly local?: boolean
  /**
   * Called by each gateway that has a clock of its own (`runtime.now`). Without a clock in its options, the store then
   * uses the one of the last gateway, so that windows and expiries agree. @default the store keeps its clock
   */
  useClock?(now: () => number): void
  ping(): Promise<void>
  /** Returns one sentence for each guarantee that the storage does not provide as configured. */
  warnings?(): Promise<readonly string[]>
  close(): Promise<void>
}

type QuotaKind =
  | 'batch'
  /** Descriptions of batches. Their number is the maximum number of batches of a key. */
  | 'batch-head'
  | 'turn'
  /** Ids of responses and items that an upstream stores for the key. */
  | 'held-response'
  /** Records of files that an upstream stores for the key. These records do not expire. */
  | 'file'
  | 'recording'
  | 'live-stream'
  | 'idempotency'
  | 'savings'
  /** Audit records of requests that were answered or billed. */
  | 'audit'
  /** Audit records of requests that were rejected, failed or abandoned without being billed. */
  | 'audit-unbilled'
  /** Budgets whose billed amount must be compared with the shares at which an event is recorded. */
  | 'budget-check'

const MIB = 1024 * 1024

/** By default, the largest batch (32 MiB), turn and recording (8 MiB) fit. An audit record has entries in two logs. */
const QUOTA_BOUNDS: Readonly<Record<QuotaKind, Omit<Quota, 'name'>>> = {
  batch: { maxEntries: 100_000, maxBytes: 96 * MIB },
  'batch-head': { maxEntries: 1_000, maxBytes: 32 * MIB },
  turn: { maxEntries: 5_000, maxBytes: 16 * MIB },
  'held-response': { maxEntries: 20_000, maxBytes: 16 * MIB },
  file: { maxEntries: 1_000, maxBytes: 4 * MIB },
  recording: { maxEntries: 5_000, maxBytes: 16 * MIB },
  'live-stream': { maxEntries: 20_000, maxBytes: 32 * MIB },
  idempotency: { maxEntries: 10_000, maxBytes: 16 * MIB },
  savings: { maxEntries: 5_000, maxBytes: 16 * MIB },
  audit: { maxEntries: 40_000, maxBytes: 32 * MIB },
  'audit-unbilled': { maxEntries: 2_000, maxBytes: 2 * MIB },
  'budget-check': { maxEntries: 10_000, maxBytes: 8 * MIB },
}

export function quotaOf(kind: QuotaKind, keyId: string): Quota {
  return { name: `${kind}:${keyId}`, ...QUOTA_BOUNDS[kind] }
}

/**
 * Creates the error with which a store rejects a value that does not fit in its quota.
 *
 * @example
 * if (quota !== undefined && bytes > quota.maxBytes) throw quotaExceededError(quota)
 */
export function quotaExceededError({ maxEntries, maxBytes }: Quota): GatewayError {
  return new GatewayError(
    'quota-exceeded',
    `The value does not fit in this key's storage quota of ${maxEntries} values and ${maxBytes} bytes (less while the store is nearly full). Delete other values or store a smaller one.`,
  )
}

/** Calendar windows in UTC: minute, hour, day, week (starting on Monday) and month. */
export type DurationCode = '1m' | '1h' | '1d' | '1w' | '1M'

export const DURATION_CODES: readonly DurationCode[] = ['1m', '1h', '1d', '1w', '1M']

/** A window in milliseconds since 1970. `end` is exclusive. */
export interface Period {
  readonly start: number
  readonly end: number
}

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
const LENGTHS_MS = { '1m': 60_000, '1h': HOUR_MS, '1d': DAY_MS, '1w': 7 * DAY_MS } as const
/** 1970-01-01 was a Thursday, so its week began three days earlier. */
const MONDAY_OFFSET_MS = 3 * DAY_MS

export function periodOf(timestamp: number, code: DurationCode): Period {
  if (code === '1M') return monthOf(timestamp)
  const lengthMs = LENGTHS_MS[code]
  const offsetMs = code === '1w' ? MONDAY_OFFSET_MS : 0
  const start = Math.floor((timestamp + offsetMs) / lengthMs) * lengthMs - offsetMs
  return { start, end: start + lengthMs }
}

function monthOf(timestamp: number): Period {
  const date = new Date(timestamp)
  const year = date.getUTCFullYear()
  const month = date.getUTCMonth()
  return { start: Date.UTC(year, month, 1), end: Date.UTC(year, month + 1, 1) }
}
