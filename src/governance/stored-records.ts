import * as z from 'zod/mini'
import { GatewayError } from '../core/errors.ts'
import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import type { NanoUsd } from '../core/money.ts'
import { DURATION_CODES, type Store } from '../core/store.ts'
import { type Budget, hashSecret, isSameHash, PLAN_NAMES, type RateLimit, type VirtualKey } from './virtual-key.ts'

export interface RecordTable<T> {
  /** Changes by this process are visible immediately, and others within `cacheMs` while the store is available. */
  find(id: string): MaybePromise<T | undefined>
  /** Bypasses the cache. Throws `not-found`. */
  read(id: string): Promise<T>
  /** Resolves with false if the id is already in use. */
  insert(id: string, record: T): Promise<boolean>
  change(id: string, change: (record: T) => T): Promise<{ readonly before: T; readonly after: T }>
  /** Resolves with undefined if the deleted record could not be parsed. Throws `not-found`. */
  remove(id: string): Promise<T | undefined>
  page(query: PageQuery): Promise<Page<T>>
}

export interface PageQuery {
  readonly limit: number
  readonly after?: string
}

export interface Page<T> {
  readonly records: readonly T[]
  readonly hasMore: boolean
}

interface LookupOptions {
  readonly store: Store
  readonly now: () => number
  readonly cacheMs?: number | undefined
  /** Returns the last cached value, if there is one, while the store is failing. @default false */
  readonly servesStale?: boolean
}

interface RecordTableOptions<T> extends LookupOptions {
  readonly prefix: string
  readonly label: string
  readonly schema: z.ZodMiniType<T>
}

const MAX_CACHED_RECORDS = 10_000
const CACHE_MS = 2_000
/** Each attempt fails only if a concurrent change succeeds. */
const MAX_ATTEMPTS = 50
/** HTTP clients remove the path segments "." and "..", so they cannot be ids. */
export const SAFE_ID: RegExp = /^(?!\.\.?$)[\w.-]{1,128}$/

/** A safe id can be part of a counter name and a message. */
export function isSafeId(id: string): boolean {
  return SAFE_ID.test(id)
}

function createRecordTable<T>(options: RecordTableOptions<T>): RecordTable<T> {
  const { store, now, prefix, label, schema, cacheMs = CACHE_MS, servesStale = false } = options
  const cache = createBoundedCache<T | undefined>()
  /** The result of a lookup that began before a change must not be cached after it. */
  let changeCount = 0

  function load(id: string): MaybePromise<string | undefined> {
    return isSafeId(id) ? store.get(prefix + id) : undefined
  }

  async function loadExisting(id: string): Promise<string> {
    const text = await load(id)
    if (text !== undefined) return text
    throw new GatewayError(
      'not-found',
      `There is no ${label} with the id ${JSON.stringify(id.slice(0, 100))}. List the records to find a valid id.`,
    )
  }

  function tryParse(text: string): T | undefined {
    try {
      return schema.safeParse(JSON.parse(text)).data
    } catch {
      return undefined
    }
  }

  function parse(text: string): T {
    const parsed = tryParse(text)
    if (parsed !== undefined) return parsed
    throw new GatewayError(
      'overloaded',
      `The stored record of this ${label} cannot be read. Requests that need it are rejected until the record is repaired.`,
    )
  }

  function find(id: string): MaybePromise<T | undefined> {
    const at = now()
    const cached = cache.get(id, at)
    if (cached !== undefined) return cached.value
    const countBefore = changeCount
    const remember = (text: string | undefined): T | undefined => {
      const record = text === undefined ? undefined : parse(text)
      if (countBefore === changeCount) cache.put(id, record, at + cacheMs)
      return record
    }
    return fallBackToLast(load(id), remember, servesStale ? cache.last(id) : undefined)
  }

  async function write(id: string, expected: string | undefined, value: string | undefined): Promise<boolean> {
    try {
      return await store.swap(prefix + id, expected, value)
    } finally {
      changeCount += 1
      cache.forget(id)
    }
  }

  async function change(id: string, update: (record: T) => T): Promise<{ readonly before: T; readonly after: T }> {
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
      const text = await loadExisting(id)
      const before = parse(text)
      const after = update(before)
      if (await write(id, text, JSON.stringify(after))) return { before, after }
    }
    throw conflictError()
  }

  async function remove(id: string): Promise<T | undefined> {
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
      const text = await loadExisting(id)
      if (await write(id, text, undefined)) return tryParse(text)
    }
    throw conflictError()
  }

  function conflictError(): GatewayError {
    return new GatewayError('conflict', `This ${label} is being changed by other requests. Retry.`)
  }

  async function page({ limit, after }: PageQuery): Promise<Page<T>> {
    const from = after === undefined ? {} : { after: prefix + after }
    const keys = await store.list(prefix, { limit: limit + 1, ...from })
    const texts = await Promise.all(keys.slice(0, limit).map((key) => store.get(key)))
    const records = texts.map((text) => (text === undefined ? undefined : tryParse(text)))
    return { records: records.filter((record) => record !== undefined), hasMore: keys.length > limit }
  }

  return {
    find,
    read: async (id) => parse(await loadExisting(id)),
    insert: (id, record) => write(id, undefined, JSON.stringify(record)),
    change,
    remove,
    page,
  }
}

interface BoundedCache<Value> {
  get(key: string, now: number): { readonly value: Value } | undefined
  /** Returns the value even if it has expired. */
  last(key: string): { readonly value: Value } | undefined
  put(key: string, value: Value, until: number): void
  forget(key: string): void
}

function createBoundedCache<Value>(): BoundedCache<Value> {
  const entries = new Map<string, { readonly value: Value; readonly until: number }>()

  function get(key: string, now: number): { readonly value: Value } | undefined {
    const entry = entries.get(key)
    return entry !== undefined && now < entry.until ? entry : undefined
  }

  function put(key: string, value: Value, until: number): void {
    entries.delete(key)
    entries.set(key, { value, until })
    if (entries.size <= MAX_CACHED_RECORDS) return
    const [oldest] = entries.keys()
    if (oldest !== undefined) entries.delete(oldest)
  }

  return { get, last: (key) => entries.get(key), put, forget: (key) => void entries.delete(key) }
}

function fallBackToLast<Found, Value>(
  lookup: MaybePromise<Found>,
  onFound: (found: Found) => Value,
  last: { readonly value: Value } | undefined,
): MaybePromise<Value> {
  if (last === undefined || !isPromise(lookup)) return chain(lookup, onFound)
  return lookup.then(onFound, () => last.value)
}

// Records with an invalid field are rejected. Otherwise, a limit that cannot be parsed would no longer apply.
const amountSchema = z.custom<NanoUsd>((value) => Number.isSafeInteger(value) && Number(value) >= 0)
const allowanceSchema = z.object({ max: amountSchema, every: z.enum(DURATION_CODES) })

const storedKeySchema: z.ZodMiniType<VirtualKey> = z.object({
  id: z.string(),
  name: z.string(),
  description: z.string(),
  hash: z.string().check(z.regex(/^[0-9a-f]{64}$/)),
  prefix: z.string(),
  createdAt: z.number(),
  active: z.boolean(),
  expiresAt: z.exactOptional(z.number()),
  budget: z.exactOptional(allowanceSchema),
  requests: z.exactOptional(allowanceSchema),
  tokens: z.exactOptional(allowanceSchema),
  budgetId: z.exactOptional(z.string()),
  rateLimitId: z.exactOptional(z.string()),
  plan: z.exactOptional(z.enum(PLAN_NAMES)),
  providers: z.array(z.object({ provider: z.string(), weight: z.number(), allowedModels: z.array(z.string()) })),
  permissions: z.object({
    allowedModels: z.exactOptional(z.array(z.string())),
    maxTokens: z.exactOptional(amountSchema),
    disableTools: z.exactOptional(z.boolean()),
    cacheSimilar: z.exactOptional(z.boolean()),
  }),
})

const storedBudgetSchema: z.ZodMiniType<Budget> = z.object({
  id: z.string(),
  name: z.string(),
  limit: allowanceSchema,
})

const storedRateLimitSchema: z.ZodMiniType<RateLimit> = z.object({
  id: z.string(),
  name: z.string(),
  requests: z.exactOptional(allowanceSchema),
  tokens: z.exactOptional(allowanceSchema),
})

export interface SharedLimits {
  readonly budgets: RecordTable<Budget>
  readonly rateLimits: RecordTable<RateLimit>
}

export function createSharedLimits(options: LookupOptions): SharedLimits {
  return {
    budgets: createRecordTable({ ...options, prefix: 'budget:', label: 'budget', schema: storedBudgetSchema }),
    rateLimits: createRecordTable({
      ...options,
      prefix: 'rate-limit:',
      label: 'rate limit',
      schema: storedRateLimitSchema,
    }),
  }
}

export interface KeyLookup {
  /** The key may be inactive or expired. */
  find(secret: string): MaybePromise<VirtualKey | undefined>
  readonly keys: RecordTable<VirtualKey>
  /** Must be called after the entry of the hash is written or deleted. */
  forget(hash: string): void
}

/** Entries under this prefix map the hash of a secret to the id of its key. */
export const HASH_PREFIX = 'key-hash:'

export function createKeyLookup(options: LookupOptions): KeyLookup {
  const { store, now, cacheMs = CACHE_MS, servesStale = false } = options
  const keys = createRecordTable({ ...options, prefix: 'key:', label: 'virtual key', schema: storedKeySchema })
  const idsByHash = createBoundedCache<string>()
  /** A separate cache, because a flood of unknown secrets would otherwise evict valid keys. */
  const unknownHashes = createBoundedCache<undefined>()

  function find(secret: string): MaybePromise<VirtualKey | undefined> {
    const hash = hashSecret(secret)
    if (hash === undefined) return undefined
    return chain(findId(hash), (id) =>
      id === undefined
        ? undefined
        : chain(keys.find(id), (key) => (key !== undefined && isSameHash(key.hash, hash) ? key : undefined)),
    )
  }

  /** A lookup that began before a change must not cache its hash as unknown. */
  let changeCount = 0

  function findId(hash: string): MaybePromise<string | undefined> {
    const at = now()
    const cached = idsByHash.get(hash, at)
    if (cached !== undefined) return cached.value
    if (unknownHashes.get(hash, at) !== undefined) return undefined
    const countBefore = changeCount
    const remember = (id: string | undefined): string | undefined => {
      if (id !== undefined) idsByHash.put(hash, id, at + cacheMs)
      else if (countBefore === changeCount) unknownHashes.put(hash, undefined, at + cacheMs)
      return id
    }
    return fallBackToLast(store.get(HASH_PREFIX + hash), remember, servesStale ? idsByHash.last(hash) : undefined)
  }

  function forget(hash: string): void {
    changeCount += 1
    idsByHash.forget(hash)
    unknownHashes.forget(hash)
  }

  return { find, keys, forget }
}
