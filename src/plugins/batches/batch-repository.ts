import type { StoredCaller } from '../../governance/caller.ts'
import { GatewayError } from '../../core/errors.ts'
import { quotaOf } from '../../core/store.ts'
import {
  type Batch,
  type BatchContext,
  changeBatch,
  CLEANUP_PREFIX,
  cleanupKey,
  EXPIRES_AFTER_MS,
  deleteBatch,
  batchKey,
  batchKeyPrefix,
  isBatchId,
  itemKey,
  itemPrefix,
  firstLine,
  makeBatchId,
  OPEN_PREFIX,
  type OpenBatch,
  parseBatch,
  parseCleanupKey,
  toPosition,
  UNCLAIMED,
  valuesOf,
} from './batch.ts'
import { mapInSlices } from '../../core/map-in-slices.ts'

interface BatchOwner extends StoredCaller {
  readonly scope: string
  readonly headers: Readonly<Record<string, string>>
}

export interface BatchQuery {
  readonly limit: number
  /** Returns only batches older than this one. Has no effect with `before`. */
  readonly after?: string
  /** Returns the batches that are newer than this one and closest to it. */
  readonly before?: string
}

interface BatchPage {
  readonly batches: readonly Batch[]
  readonly hasMore: boolean
}

export interface BatchRepositoryOptions extends BatchContext {
  readonly now: () => number
  readonly uuid: () => string
}

const MAX_BATCHES = quotaOf('batch-head', '').maxEntries
const REQUESTS_PER_SLICE = 100
const MAX_CONCURRENT_READS = 16
/** Age at which an incomplete batch is deleted. The process that was creating the batch is presumed dead. */
const FILL_TIMEOUT_MS = 3_600_000

export class BatchRepository {
  readonly #options: BatchRepositoryOptions
  readonly #store: BatchRepositoryOptions['store']
  readonly #now: () => number
  readonly #uuid: () => string
  readonly #pause: BatchRepositoryOptions['pause']

  constructor(options: BatchRepositoryOptions) {
    this.#options = options
    const { store, now, uuid, pause } = options
    this.#store = store
    this.#now = now
    this.#uuid = uuid
    this.#pause = pause
  }

  /** @param requests JSON of `{custom_id, params}`. */
  async create(owner: BatchOwner, requests: readonly string[]): Promise<Batch> {
    const { scope } = owner
    const createdAt = this.#now()
    const id = makeBatchId(createdAt, this.#uuid())
    const expiresAt = createdAt + EXPIRES_AFTER_MS
    const batch: Batch = { ...owner, id, total: requests.length, createdAt, expiresAt, state: 'filling' }
    const cleanup = cleanupKey(createdAt + FILL_TIMEOUT_MS, id)
    const quota = quotaOf('batch', scope)
    try {
      await this.#store.set(cleanup, scope, { quota })
      await this.#writeNew(batch)
      await this.#fill({ id, scope }, requests)
      await this.#store.set(OPEN_PREFIX + id, scope, { quota })
      return await this.#change(scope, id, (current) => ({ ...current, state: 'working' }))
    } catch (error) {
      await deleteBatch(this.#options, { scope, id })
        .then(() => this.#store.delete(cleanup))
        .catch(() => {})
      throw isQuotaExceeded(error) ? storageFullError(error) : error
    }
  }

  /** The quota limits the number of batches, because the store checks it in the same step as it writes the value. */
  async #writeNew(batch: Batch): Promise<void> {
    const { scope, id } = batch
    try {
      await this.#store.set(batchKey(scope, id), JSON.stringify(batch), { quota: quotaOf('batch-head', scope) })
    } catch (error) {
      // A nearly full store rejects the value before the key reaches its maximum number of batches.
      const keys = isQuotaExceeded(error) ? await this.#store.list(batchKeyPrefix(scope), { limit: MAX_BATCHES }) : []
      throw keys.length >= MAX_BATCHES ? tooManyBatchesError() : error
    }
  }

  async #fill({ id, scope }: OpenBatch, requests: readonly string[]): Promise<void> {
    const quota = quotaOf('batch', scope)
    for (let from = 0; from < requests.length; from += REQUESTS_PER_SLICE) {
      const slice = requests.slice(from, from + REQUESTS_PER_SLICE)
      const writes = slice.flatMap((text, index) => {
        const position = toPosition(from + index)
        return [
          this.#store.set(itemKey('request', id, position), text, { quota }),
          this.#store.set(itemKey('todo', id, position), UNCLAIMED, { quota }),
        ]
      })
      // Waits for all writes, because a pending write could complete after the deletion of the batch.
      const failed = (await Promise.allSettled(writes)).find((write) => write.status === 'rejected')
      if (failed !== undefined) throw failed.reason
      await this.#pause()
    }
  }

  async read(scope: string, id: string): Promise<Batch> {
    const batch = isBatchId(id) ? parseBatch(await this.#store.get(batchKey(scope, id))) : undefined
    if (batch === undefined || batch.state === 'filling') throw unknownBatchError()
    return batch
  }

  async #change(scope: string, id: string, update: (batch: Batch) => Batch): Promise<Batch> {
    const changed = await changeBatch(this.#store, { scope, id }, update)
    if (changed === undefined) throw unknownBatchError()
    return changed
  }

  async page(scope: string, query: BatchQuery): Promise<BatchPage> {
    const { limit, before } = query
    const keys = await (before === undefined ? this.#listOlder(scope, query) : this.#listNewer(scope, before))
    const pageKeys = before === undefined ? keys.slice(0, limit) : keys.slice(-limit)
    const texts = await mapInSlices(pageKeys, MAX_CONCURRENT_READS, (key) => this.#store.get(key))
    const batches = texts.map(parseBatch).filter((batch) => batch !== undefined && batch.state !== 'filling')
    return { batches: batches as readonly Batch[], hasMore: keys.length > limit }
  }

  #listOlder(scope: string, { limit, after }: BatchQuery): Promise<readonly string[]> {
    const prefix = batchKeyPrefix(scope)
    return this.#store.list(prefix, { limit: limit + 1, ...(after !== undefined && { after: prefix + after }) })
  }

  async #listNewer(scope: string, before: string): Promise<readonly string[]> {
    const prefix = batchKeyPrefix(scope)
    return (await this.#store.list(prefix, { limit: MAX_BATCHES })).filter((key) => key < prefix + before)
  }

  async cancel(scope: string, id: string): Promise<Batch> {
    const batch = await this.read(scope, id)
    if (batch.state === 'ended' || batch.canceledAt !== undefined) return batch
    return this.#change(scope, id, (current) =>
      current.state === 'ended' ? current : { ...current, canceledAt: current.canceledAt ?? this.#now() },
    )
  }

  async remove(scope: string, id: string): Promise<void> {
    const batch = await this.read(scope, id)
    if (batch.state !== 'ended') throw notEndedError('it cannot be deleted')
    await deleteBatch(this.#options, { scope, id })
  }

  /**
   * Deletes all batches of a scope. A worker may still store the result of an item, so a later cleanup deletes the items
   * again. Its entry does not contain the scope.
   */
  async purge(scope: string): Promise<void> {
    const prefix = batchKeyPrefix(scope)
    const ids = new Set((await this.#store.list(prefix, { limit: MAX_BATCHES })).map((key) => key.slice(prefix.length)))
    if (ids.size === 0) return
    const dueAt = this.#now() + FILL_TIMEOUT_MS
    for (const id of ids) await this.#store.set(cleanupKey(dueAt, id), '')
    for (let after: string | undefined; ;) {
      const keys = await this.#store.list(CLEANUP_PREFIX, { limit: MAX_BATCHES, ...(after !== undefined && { after }) })
      const old = keys.filter((key) => {
        const { id } = parseCleanupKey(key)
        return ids.has(id) && key !== cleanupKey(dueAt, id)
      })
      await mapInSlices(old, MAX_CONCURRENT_READS, (key) => this.#store.delete(key))
      after = keys.at(-1)
      if (keys.length < MAX_BATCHES) break
      await this.#pause()
    }
    for (const id of ids) await deleteBatch(this.#options, { scope, id })
  }

  async *results(batch: Batch): AsyncGenerator<string, void, undefined> {
    for await (const value of valuesOf(this.#options, itemPrefix('result', batch.id))) yield `${firstLine(value)}\n`
  }

  /** The unfinished batches of all keys, oldest first. */
  async listOpen(findKnown: (id: string) => OpenBatch | undefined): Promise<readonly OpenBatch[]> {
    const openBatches: OpenBatch[] = []
    for (let after: string | undefined; ;) {
      const keys = await this.#store.list(OPEN_PREFIX, { limit: MAX_BATCHES, ...(after !== undefined && { after }) })
      const batches = await Promise.all(keys.map((key) => this.#readOpenBatch(key, findKnown)))
      openBatches.push(...batches.filter((batch) => batch !== undefined))
      if (keys.length < MAX_BATCHES) return openBatches.toReversed()
      after = keys.at(-1)
      await this.#pause()
    }
  }

  async #readOpenBatch(key: string, findKnown: (id: string) => OpenBatch | undefined): Promise<OpenBatch | undefined> {
    const id = key.slice(OPEN_PREFIX.length)
    const known = findKnown(id)
    if (known !== undefined) return known
    const scope = await this.#store.get(key)
    return scope === undefined ? undefined : { id, scope }
  }
}

function unknownBatchError(): GatewayError {
  return new GatewayError(
    'not-found',
    'This key has no message batch with this id. List its batches with GET /v1/messages/batches.',
  )
}

export function notEndedError(consequence: string): GatewayError {
  return new GatewayError(
    'invalid-request',
    `The batch has not ended, so ${consequence} yet. Wait until its processing_status is ended, or cancel it.`,
  )
}

function tooManyBatchesError(): GatewayError {
  return new GatewayError(
    'invalid-request',
    `This key has ${MAX_BATCHES} message batches, which is the maximum. Delete ended batches.`,
  )
}

function isQuotaExceeded(error: unknown): error is GatewayError {
  return GatewayError.is(error) && error.kind === 'quota-exceeded'
}

function storageFullError(cause: GatewayError): GatewayError {
  return new GatewayError(
    'quota-exceeded',
    "This batch exceeds the key's storage quota for message batches and their results. Delete ended batches, wait for other batches to end, or create a smaller batch.",
    { cause },
  )
}
