import { sha256 } from '#hash'
import type { ResponseStore, CachedResponse, StoreSize } from '../core/cache.ts'
import { integerFrom, type OptionCheck } from '../core/check-options.ts'
import { GatewayError } from '../core/errors.ts'
import type { Quota, Store, WriteOptions } from '../core/store.ts'
import { bytesOf, createStoreClock, type StoreClock } from './store-rules.ts'

/** Quota for the responses of one key. A full quota drops the least recently written answer. */
export interface ResponseStoreOptions {
  /** @default 10,000 */
  readonly maxEntriesPerKey?: number
  /** @default 64 MiB */
  readonly maxBytesPerKey?: number
}

export const RESPONSE_CHECKS: Readonly<Record<keyof ResponseStoreOptions, OptionCheck>> = {
  maxEntriesPerKey: integerFrom(0),
  maxBytesPerKey: integerFrom(0),
}

const DEFAULT_MAX_ENTRIES = 10_000
const DEFAULT_MAX_BYTES = 64 * 1024 * 1024
/** The response, its entry in the list of its key and, if it is comparable, its entry in the list of its scope. */
const MAX_VALUES_PER_RESPONSE = 3
const PAGE_SIZE = 200
const MAX_AMEND_ATTEMPTS = 3
const MAX_COUNTED_RESPONSES = 10_000

export function createResponseStore(
  store: Store,
  options: ResponseStoreOptions,
  ownClock: (() => number) | undefined,
): ResponseStore {
  const { clock, useClock } = createStoreClock(ownClock, Date.now)
  const { maxEntriesPerKey = DEFAULT_MAX_ENTRIES, maxBytesPerKey = DEFAULT_MAX_BYTES } = options
  const claimToken = crypto.randomUUID()
  const responseCounter = createResponseCounter(clock)
  const quotaOf = (keyId: string): Quota => ({
    name: `answers:${keyId}`,
    maxEntries: maxEntriesPerKey * MAX_VALUES_PER_RESPONSE,
    maxBytes: maxBytesPerKey,
  })

  async function put(response: CachedResponse): Promise<boolean> {
    const { id, keyId, storedAt, expiresAt } = response
    const writeOptions = { ttlMs: expiresAt - storedAt, quota: quotaOf(keyId) }
    const text = encodeResponse(response)
    const bytes = bytesOf(responseKey(id), text)
    if (bytes > maxBytesPerKey) return false
    await store.set(responseKey(id), text, writeOptions)
    await addToLists(response, writeOptions)
    responseCounter.add(id, { bytes, expiresAt })
    return true
  }

  /** Must be called after the response is written. A full quota then drops the response before its list entries. */
  async function addToLists(
    { id, keyId, scope, comparable }: CachedResponse,
    writeOptions: WriteOptions,
  ): Promise<void> {
    await Promise.all([
      store.set(ownerKey(keyId, id), comparable ? scope : '', writeOptions),
      comparable && store.set(scopeKey(scope, id), '', writeOptions),
    ])
  }

  async function amend(id: string, changes: Pick<CachedResponse, 'threshold' | 'maxHitSimilarity'>): Promise<void> {
    for (let attempt = 0; attempt < MAX_AMEND_ATTEMPTS; attempt += 1) {
      const text = await store.get(responseKey(id))
      const response = decodeResponse(text)
      const ttlMs = (response?.expiresAt ?? 0) - clock.now()
      if (response === undefined || ttlMs <= 0) return
      const changedText = encodeResponse({ ...response, ...changes })
      const writeOptions = { ttlMs, quota: quotaOf(response.keyId) }
      if (await store.swap(responseKey(id), text, changedText, writeOptions)) return addToLists(response, writeOptions)
    }
  }

  async function remove(id: string): Promise<void> {
    const response = decodeResponse(await store.get(responseKey(id)))
    responseCounter.remove(id)
    const keys = response === undefined ? [] : [ownerKey(response.keyId, id), scopeKey(response.scope, id)]
    await Promise.all([responseKey(id), ...keys].map((key) => store.delete(key)))
  }

  async function clear(keyId?: string): Promise<void> {
    const prefix = keyId === undefined ? 'answer-of:' : ownerKey(keyId, '')
    for (;;) {
      const keys = await store.list(prefix, { limit: PAGE_SIZE })
      if (keys.length === 0) break
      await Promise.all(
        keys.map(async (key) => {
          const [, id = ''] = OWNER_KEY.exec(key) ?? []
          const scope = await store.get(key)
          responseCounter.remove(id)
          await Promise.all([responseKey(id), scopeKey(scope ?? '', id)].map((relatedKey) => store.delete(relatedKey)))
          await store.delete(key)
        }),
      )
    }
  }

  return {
    get: async (id) => decodeResponse(await store.get(responseKey(id))),
    put,
    amend,
    remove,
    hasComparable: async (scope) => (await store.list(scopeKey(scope, ''), { limit: 1 })).length > 0,
    clear,
    size: responseCounter.size,
    claims: {
      acquire: (id, ttlMs) => store.swap(claimKey(id), undefined, claimToken, { ttlMs }),
      isHeld: async (id) => (await store.get(claimKey(id))) !== undefined,
      release: async (id) => void (await store.swap(claimKey(id), claimToken, undefined)),
      values: store,
    },
    useClock: (now) => {
      useClock(now)
      store.useClock?.(now)
    },
  }
}

const responseKey = (id: string): string => `answer:${id}`
const claimKey = (id: string): string => `answer-claim:${id}`
/** Quotes the key id, so that no id is a prefix of another. */
const ownerKey = (keyId: string, id: string): string => `answer-of:${JSON.stringify(keyId)}:${id}`
const scopeKey = (scope: string, id: string): string => `answer-in:${JSON.stringify(scope)}:${id}`

const OWNER_KEY = /^answer-of:"(?:[^"\\]|\\.)*":(.*)$/s

/** Prepends a hash, which reveals damaged responses and those in another version of this encoding. */
function encodeResponse(response: CachedResponse): string {
  const json = JSON.stringify(response)
  return `${hashOf(json)} ${json}`
}

function decodeResponse(text: string | undefined): CachedResponse | undefined {
  if (text === undefined) return undefined
  const space = text.indexOf(' ')
  const json = text.slice(space + 1)
  if (text.slice(0, space) !== hashOf(json)) return undefined
  const response: CachedResponse = JSON.parse(json)
  return response
}

function hashOf(json: string): string {
  return sha256(`answer 2 ${json}`)
}

function createResponseCounter(clock: StoreClock) {
  const entries = new Map<string, { readonly bytes: number; readonly expiresAt: number }>()
  return {
    add: (id: string, entry: { readonly bytes: number; readonly expiresAt: number }): void => {
      entries.delete(id)
      const [oldest] = entries.keys()
      if (entries.size >= MAX_COUNTED_RESPONSES && oldest !== undefined) entries.delete(oldest)
      entries.set(id, entry)
    },
    remove: (id: string): void => void entries.delete(id),
    size: (): StoreSize => {
      let bytes = 0
      for (const [id, entry] of entries) {
        if (entry.expiresAt <= clock.now()) entries.delete(id)
        else bytes += entry.bytes
      }
      return { entries: entries.size, bytes }
    },
  }
}

export function checkVector(vector: Float32Array, dimensions: number): void {
  if (vector.length !== dimensions) {
    throw new GatewayError(
      'internal',
      `A vector has ${vector.length} dimensions; the index expects ${dimensions}. Set the dimensions of the index to those of the embedder.`,
    )
  }
  if (!vector.every(Number.isFinite)) {
    throw new GatewayError(
      'internal',
      'A vector contains a number that is not finite; the index accepts only finite numbers. Check the embedder.',
    )
  }
}
