import type { StoredCaller } from '../../governance/caller.ts'
import { deletePrefix } from '../../core/delete-prefix.ts'
import { isJsonObject, type JsonObject, parseJson } from '../../core/json.ts'
import { GatewayError } from '../../core/errors.ts'
import { quotaOf, type Store, type WriteOptions } from '../../core/store.ts'

export type ItemOutcome = 'succeeded' | 'errored' | 'canceled' | 'expired'

type ItemCounts = Readonly<Record<ItemOutcome, number>>

/** Items and results are stored separately. Times are milliseconds since 1970. */
export interface Batch extends StoredCaller {
  readonly id: string
  /** Of the caller that created the batch. */
  readonly scope: string
  readonly total: number
  readonly createdAt: number
  readonly expiresAt: number
  readonly headers: Readonly<Record<string, string>>
  /** `filling` until all items are written. Such a batch is not listed. */
  readonly state: 'filling' | 'working' | 'ended'
  readonly canceledAt?: number
  readonly endedAt?: number
  /** Time at which the results were deleted. */
  readonly archivedAt?: number
  readonly counts?: ItemCounts
}

const DAY_MS = 86_400_000

export const EXPIRES_AFTER_MS: number = DAY_MS
const RESULTS_RETENTION_MS = 29 * DAY_MS
const BATCH_RETENTION_MS = 90 * DAY_MS

const PREFIX = 'msgbatch_'
const ID_PATTERN = /^msgbatch_[0-9a-f]{32}$/
const TIME_DIGITS = 12
const MAX_TIME_MS = 16 ** TIME_DIGITS - 1

/** Later batches have smaller ids, because an ascending list must begin with the newest batch. */
export function makeBatchId(now: number, uuid: string): string {
  const descendingTime = (MAX_TIME_MS - now).toString(16).padStart(TIME_DIGITS, '0')
  return `${PREFIX}${descendingTime}${uuid.replaceAll('-', '').slice(0, 32 - TIME_DIGITS)}`
}

export function isBatchId(text: string): boolean {
  return ID_PATTERN.test(text)
}

export const NO_COUNTS: ItemCounts = { succeeded: 0, errored: 0, canceled: 0, expired: 0 }

export function parseBatch(text: string | undefined): Batch | undefined {
  const value: unknown = text === undefined ? undefined : parseJson(text)
  return isBatch(value) ? value : undefined
}

function isBatch(value: unknown): value is Batch & JsonObject {
  return (
    isJsonObject(value) &&
    ['id', 'scope', 'keyId', 'state'].every((field) => typeof value[field] === 'string') &&
    ['total', 'createdAt', 'expiresAt'].every((field) => typeof value[field] === 'number') &&
    isJsonObject(value['context']) &&
    isJsonObject(value['headers'])
  )
}

/** Batches are stored without a TTL, because stores may drop values that have one. */
export function batchKey(scope: string, id: string): string {
  return `${batchKeyPrefix(scope)}${id}`
}

export function batchKeyPrefix(scope: string): string {
  return `batch-head:${scope}:`
}

/** Prefix of the keys of unfinished batches. The value is the scope. */
export const OPEN_PREFIX = 'batch-open:'

/** Prefix of the keys of cleanup entries, which are sorted by time. The value is the scope. */
export const CLEANUP_PREFIX = 'batch-due:'
const CLEANUP_TIME_DIGITS = 15

export function cleanupKey(at: number, id: string): string {
  return `${CLEANUP_PREFIX}${String(Math.floor(at)).padStart(CLEANUP_TIME_DIGITS, '0')}:${id}`
}

export function parseCleanupKey(key: string): { readonly at: number; readonly id: string } {
  const [at = '', id = ''] = key.slice(CLEANUP_PREFIX.length).split(':')
  return { at: Number(at), id }
}

type ItemValueKind =
  /** The claim on the item. Deleted when the item is closed. */
  | 'todo'
  | 'request'
  /** A result line, and its settlement until the item is closed. */
  | 'result'

export function itemPrefix(kind: ItemValueKind, batchId: string): string {
  return `batch-${kind}:${batchId}:`
}

const INDEX_DIGITS = 5

export function toPosition(index: number): string {
  return String(index).padStart(INDEX_DIGITS, '0')
}

export function itemKey(kind: ItemValueKind, batchId: string, position: string): string {
  return `${itemPrefix(kind, batchId)}${position}`
}

export interface OpenBatch {
  readonly id: string
  readonly scope: string
}

export interface BatchContext {
  readonly store: Store
  /** Yields to the event loop. Calls to a local store do not yield. */
  readonly pause: () => Promise<void>
}

/** A small value may exceed the quota, because an accepted batch must be able to end. */
export function smallValueOptions(scope: string): WriteOptions {
  return { quota: quotaOf('batch', scope), mayExceedQuota: true }
}

const PAGE_SIZE = 100
const MAX_CHANGE_ATTEMPTS = 50

export const UNCLAIMED = '0'

export function firstLine(value: string): string {
  const end = value.indexOf('\n')
  return end < 0 ? value : value.slice(0, end)
}

export async function changeBatch(
  store: Store,
  { scope, id }: OpenBatch,
  update: (batch: Batch) => Batch,
): Promise<Batch | undefined> {
  const key = batchKey(scope, id)
  const options = { quota: quotaOf('batch-head', scope), mayExceedQuota: true }
  for (let attempt = 0; attempt < MAX_CHANGE_ATTEMPTS; attempt += 1) {
    const text = await store.get(key)
    const current = parseBatch(text)
    if (current === undefined) return undefined
    const changed = update(current)
    if (changed === current) return current
    if (await store.swap(key, text, JSON.stringify(changed), options)) return changed
  }
  throw new GatewayError('conflict', 'Too many concurrent requests are changing this batch. Retry later.')
}

/** The cleanup entry must be deleted last, so that another process can complete the deletion. */
export async function deleteBatch(context: BatchContext, { scope, id }: OpenBatch): Promise<void> {
  await context.store.delete(batchKey(scope, id))
  await context.store.delete(OPEN_PREFIX + id)
  await deleteAllItems(context, id)
}

/** Later items of the same batch may still be written by the worker that processes them. */
export async function deleteAllItems({ store, pause }: BatchContext, id: string): Promise<void> {
  for (const kind of ['todo', 'request', 'result'] as const) await deletePrefix(store, itemPrefix(kind, id), pause)
}

/** Low, because that many of the largest answers must fit into memory. */
const MAX_CONCURRENT_READS = 4

export async function* valuesOf(
  { store, pause }: BatchContext,
  prefix: string,
): AsyncGenerator<string, void, undefined> {
  for (let after: string | undefined; ;) {
    const keys = await store.list(prefix, { limit: PAGE_SIZE, ...(after !== undefined && { after }) })
    if (keys.length === 0) return
    for (let from = 0; from < keys.length; from += MAX_CONCURRENT_READS) {
      const values = await Promise.all(keys.slice(from, from + MAX_CONCURRENT_READS).map((key) => store.get(key)))
      yield* values.filter((value) => value !== undefined)
    }
    after = keys.at(-1)
    await pause()
  }
}

const CLEANUP_PAGE_SIZE = 20

export async function cleanUpBatches(context: BatchContext & { readonly now: () => number }): Promise<void> {
  const { store, now } = context
  for (;;) {
    const keys = await store.list(CLEANUP_PREFIX, { limit: CLEANUP_PAGE_SIZE })
    const due = keys.filter((key) => parseCleanupKey(key).at <= now())
    for (const key of due) await cleanUpBatch(context, key, now())
    if (due.length < CLEANUP_PAGE_SIZE) return
  }
}

async function cleanUpBatch(context: BatchContext, key: string, now: number): Promise<void> {
  const { store } = context
  const { id } = parseCleanupKey(key)
  const scope = (await store.get(key)) ?? ''
  const batch = parseBatch(await store.get(batchKey(scope, id)))
  const nextAt = batch && nextCleanupAt(batch, now)
  if (batch === undefined || nextAt === undefined) await deleteBatch(context, { scope, id })
  else {
    if (batch.state === 'ended' && now >= batch.createdAt + RESULTS_RETENTION_MS) await archive(context, batch, now)
    await store.set(cleanupKey(nextAt, id), scope, smallValueOptions(scope))
  }
  await store.delete(key)
}

/** Returns undefined if the batch must be deleted. */
function nextCleanupAt({ state, createdAt }: Batch, now: number): number | undefined {
  if (state === 'filling') return undefined
  if (now < createdAt + RESULTS_RETENTION_MS) return createdAt + RESULTS_RETENTION_MS
  if (state === 'working') return now + DAY_MS
  return now < createdAt + BATCH_RETENTION_MS ? createdAt + BATCH_RETENTION_MS : undefined
}

async function archive(context: BatchContext, batch: Batch, now: number): Promise<void> {
  await changeBatch(context.store, batch, (current) => ({ ...current, archivedAt: current.archivedAt ?? now }))
  await deletePrefix(context.store, itemPrefix('result', batch.id), context.pause)
}
