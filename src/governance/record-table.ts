import type * as z from 'zod/mini'
import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { Store, WriteOptions } from '../core/store.ts'

export interface PageQuery {
  readonly limit: number
  readonly after?: string
}

export interface Page<T> {
  readonly records: readonly T[]
  readonly hasMore: boolean
}

export interface LookupOptions {
  readonly store: Store
  readonly now: () => number
  readonly cacheMs?: number | undefined
  /** Returns the last cached value, if there is one, while the store is failing. @default false */
  readonly servesStale?: boolean
}

interface RecordTableOptions<T> extends LookupOptions {
  /** True for records whose usage is reported after their deletion. Their key is the owner of their tallies. @default false */
  readonly hasUsage?: boolean
  readonly prefix: string
  readonly label: string
  readonly schema: z.ZodMiniType<T>
}

const MAX_CACHED_RECORDS = 10_000
export const CACHE_MS = 2_000
/** Each attempt fails only if a concurrent change succeeds. */
const MAX_ATTEMPTS = 50
/** HTTP clients remove the path segments "." and "..", so they cannot be ids. */
export const SAFE_ID: RegExp = /^(?!\.\.?$)[\w.-]{1,128}$/

/** A safe id can be part of a counter name and a message. */
export function isSafeId(id: string): boolean {
  return SAFE_ID.test(id)
}

/** The records of one kind in the store, with a cache of those that requests need. */
export class RecordTable<T> {
  readonly #options: RecordTableOptions<T>
  readonly #cache = new BoundedCache<T | undefined>()
  /** The result of a lookup that began before a change must not be cached after it. */
  #changeCount = 0

  constructor(options: RecordTableOptions<T>) {
    this.#options = options
  }

  /** Changes by this process are visible immediately, and others within `cacheMs` while the store is available. */
  find(id: string): MaybePromise<T | undefined> {
    const { now, cacheMs = CACHE_MS, servesStale = false } = this.#options
    const at = now()
    const cached = this.#cache.get(id, at)
    if (cached !== undefined) return cached.value
    const countBefore = this.#changeCount
    const remember = (text: string | undefined): T | undefined => {
      const record = text === undefined ? undefined : this.#parse(text)
      if (countBefore === this.#changeCount) this.#cache.put(id, record, at + cacheMs)
      return record
    }
    return fallBackToLast(this.#load(id), remember, servesStale ? this.#cache.last(id) : undefined)
  }

  /** Bypasses the cache. Throws `not-found`. */
  async read(id: string): Promise<T> {
    return this.#parse(await this.#loadExisting(id))
  }

  /** Resolves with false if the id is already in use. */
  insert(id: string, record: T, options?: WriteOptions): Promise<boolean> {
    return this.#write(id, undefined, JSON.stringify(record), options)
  }

  async change(id: string, change: (record: T) => MaybePromise<T>): Promise<{ readonly before: T; readonly after: T }> {
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
      const text = await this.#loadExisting(id)
      const before = this.#parse(text)
      const after = await change(before)
      if (await this.#write(id, text, JSON.stringify(after))) return { before, after }
    }
    throw this.#conflictError()
  }

  /** Resolves with undefined if the deleted record could not be parsed. Throws `not-found`. */
  async remove(id: string): Promise<T | undefined> {
    const { store, prefix, hasUsage, now } = this.#options
    await this.#loadExisting(id)
    if (hasUsage === true) await (await import('./usage-owners.ts')).keepUsageOwner(store, prefix + id, now())
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt += 1) {
      const text = await this.#loadExisting(id)
      if (await this.#write(id, text, undefined)) return this.#tryParse(text)
    }
    throw this.#conflictError()
  }

  async page({ limit, after }: PageQuery): Promise<Page<T>> {
    const { store, prefix } = this.#options
    const from = after === undefined ? {} : { after: prefix + after }
    const keys = await store.list(prefix, { limit: limit + 1, ...from })
    const records = await this.readAll(keys.slice(0, limit).map((key) => key.slice(prefix.length)))
    return { records: records.filter((record) => record !== undefined), hasMore: keys.length > limit }
  }

  /** Bypasses the cache. Undefined for a record that does not exist or cannot be read. */
  async readAll(ids: readonly string[]): Promise<readonly (T | undefined)[]> {
    const texts = await Promise.all(ids.map((id) => this.#load(id)))
    return texts.map((text) => (text === undefined ? undefined : this.#tryParse(text)))
  }

  #load(id: string): MaybePromise<string | undefined> {
    const { store, prefix } = this.#options
    return isSafeId(id) ? store.get(prefix + id) : undefined
  }

  async #loadExisting(id: string): Promise<string> {
    const text = await this.#load(id)
    if (text !== undefined) return text
    throw new GatewayError(
      'not-found',
      `There is no ${this.#options.label} with the id ${JSON.stringify(id.slice(0, 100))}. List the records to find a valid id.`,
    )
  }

  async #write(
    id: string,
    expected: string | undefined,
    value: string | undefined,
    options?: WriteOptions,
  ): Promise<boolean> {
    const { store, prefix } = this.#options
    try {
      return await store.swap(prefix + id, expected, value, options)
    } finally {
      this.#changeCount += 1
      this.#cache.forget(id)
    }
  }

  #parse(text: string): T {
    const parsed = this.#tryParse(text)
    if (parsed !== undefined) return parsed
    throw new GatewayError(
      'overloaded',
      `The stored record of this ${this.#options.label} cannot be read. Requests that need it are rejected until the record is repaired.`,
    )
  }

  #tryParse(text: string): T | undefined {
    try {
      return this.#options.schema.safeParse(JSON.parse(text)).data
    } catch {
      return undefined
    }
  }

  #conflictError(): GatewayError {
    return new GatewayError('conflict', `This ${this.#options.label} is being changed by other requests. Retry.`)
  }
}

export class BoundedCache<Value> {
  readonly #entries = new Map<string, { readonly value: Value; readonly until: number }>()

  get(key: string, now: number): { readonly value: Value } | undefined {
    const entry = this.#entries.get(key)
    return entry !== undefined && now < entry.until ? entry : undefined
  }

  /** Returns the value even if it has expired. */
  last(key: string): { readonly value: Value } | undefined {
    return this.#entries.get(key)
  }

  put(key: string, value: Value, until: number): void {
    this.#entries.delete(key)
    this.#entries.set(key, { value, until })
    if (this.#entries.size <= MAX_CACHED_RECORDS) return
    const [oldest] = this.#entries.keys()
    if (oldest !== undefined) this.#entries.delete(oldest)
  }

  forget(key: string): void {
    this.#entries.delete(key)
  }
}

export function fallBackToLast<Found, Value>(
  lookup: MaybePromise<Found>,
  onFound: (found: Found) => Value,
  last: { readonly value: Value } | undefined,
): MaybePromise<Value> {
  if (last === undefined || !isPromise(lookup)) return chain(lookup, onFound)
  return lookup.then(onFound, () => last.value)
}
