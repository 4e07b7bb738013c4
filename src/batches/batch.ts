import { isJsonObject, type JsonObject } from '../core/json.ts'

/** The result of an item. */
export type ItemEnd = 'succeeded' | 'errored' | 'canceled' | 'expired'

export type Counts = Readonly<Record<ItemEnd, number>>

/** One batch as stored. Items and results are separate values. Times are milliseconds since 1970. */
export interface Batch {
  readonly id: string
  readonly keyId: string
  /** Number of items. */
  readonly total: number
  readonly createdAt: number
  /** Time at which unanswered items expire. */
  readonly expiresAt: number
  /** Headers of the request that created the batch. They apply to each item. */
  readonly headers: Readonly<Record<string, string>>
  /** `filling` until all items are written. A filling batch is not shown. */
  readonly state: 'filling' | 'working' | 'ended'
  readonly cancelledAt?: number
  readonly endedAt?: number
  /** Time at which the results were deleted. */
  readonly archivedAt?: number
  /** Present once the batch has ended. */
  readonly counts?: Counts
}

const DAY_MS = 86_400_000

export const EXPIRES_AFTER_MS: number = DAY_MS
/** Retention of results from the creation of the batch, in milliseconds. */
export const RESULTS_FOR_MS: number = 29 * DAY_MS
/** Retention of a batch from its creation, in milliseconds. */
export const LISTED_FOR_MS: number = 90 * DAY_MS

const PREFIX = 'msgbatch_'
const ID = /^msgbatch_[0-9a-f]{32}$/
const TIME_DIGITS = 12
const LATEST = 16 ** TIME_DIGITS - 1

/**
 * Returns a new id. Ids of later batches are smaller, so that a list in ascending order begins with the newest batch.
 */
export function makeBatchId(now: number, uuid: string): string {
  const age = (LATEST - now).toString(16).padStart(TIME_DIGITS, '0')
  return `${PREFIX}${age}${uuid.replaceAll('-', '').slice(0, 32 - TIME_DIGITS)}`
}

/** Returns true for a valid id. Only valid ids become part of store keys. */
export function isBatchId(text: string): boolean {
  return ID.test(text)
}

export const NO_COUNTS: Counts = { succeeded: 0, errored: 0, canceled: 0, expired: 0 }

/** Parses a stored batch. Returns undefined for an invalid value. */
export function parseBatch(text: string | undefined): Batch | undefined {
  if (text === undefined) return undefined
  try {
    const value: unknown = JSON.parse(text)
    return isBatch(value) ? value : undefined
  } catch {
    return undefined
  }
}

function isBatch(value: unknown): value is Batch & JsonObject {
  return (
    isJsonObject(value) &&
    ['id', 'keyId', 'state'].every((field) => typeof value[field] === 'string') &&
    ['total', 'createdAt', 'expiresAt'].every((field) => typeof value[field] === 'number') &&
    isJsonObject(value['headers'])
  )
}

/** Writes a batch in the message format. Until the batch has ended, all its items count as processing. */
export function writeBatch(batch: Batch, resultsUrl: string): JsonObject {
  const { counts = NO_COUNTS } = batch
  const hasEnded = batch.state === 'ended'
  return {
    id: batch.id,
    type: 'message_batch',
    processing_status: hasEnded ? 'ended' : batch.cancelledAt === undefined ? 'in_progress' : 'canceling',
    request_counts: { processing: hasEnded ? 0 : batch.total, ...counts },
    created_at: time(batch.createdAt),
    expires_at: time(batch.expiresAt),
    ended_at: time(batch.endedAt),
    cancel_initiated_at: time(batch.cancelledAt),
    archived_at: time(batch.archivedAt),
    results_url: hasEnded && batch.archivedAt === undefined ? resultsUrl : null,
  }
}

function time(at: number | undefined): string | null {
  return at === undefined ? null : new Date(at).toISOString()
}

/** Store keys of batches. Their values have no expiry, so that no store drops them. */

/** Returns the store key of a batch (`Batch` as JSON). A key's batches are listed newest first. */
export function headKey(keyId: string, id: string): string {
  return `${headsOf(keyId)}${id}`
}

export function headsOf(keyId: string): string {
  return `batch-head:${keyId}:`
}

/** Prefix of unfinished batches. The value is the id of the batch's virtual key. */
export const OPEN = 'batch-open:'

/** Prefix of cleanup entries, ordered by time. The value is the id of the batch's virtual key. */
export const CLEANUP = 'batch-due:'
const DUE_TIME_DIGITS = 15

export function cleanupKey(at: number, id: string): string {
  return `${CLEANUP}${String(Math.floor(at)).padStart(DUE_TIME_DIGITS, '0')}:${id}`
}

export function readCleanupKey(key: string): { readonly at: number; readonly id: string } {
  const [at = '', id = ''] = key.slice(CLEANUP.length).split(':')
  return { at: Number(at), id }
}

/** Kinds of stored values of an item. */
type ItemValue =
  /** The claim on the item. Deleted when the item is finished. */
  | 'todo'
  /** `{custom_id, params}`. */
  | 'request'
  /** A line of the results with its pending settlement. */
  | 'result'

/** Returns the prefix of all values of one kind of a batch. */
export function itemsOf(kind: ItemValue, batchId: string): string {
  return `batch-${kind}:${batchId}:`
}

const INDEX_DIGITS = 5

/** Returns the position of an item in its batch as sortable text. */
export function positionOf(index: number): string {
  return String(index).padStart(INDEX_DIGITS, '0')
}

export function itemKey(kind: ItemValue, batchId: string, position: string): string {
  return `${itemsOf(kind, batchId)}${position}`
}
