import { GatewayError } from '../core/errors.ts'
import type { MaybePromise } from '../core/async.ts'
import type { Store } from '../core/store.ts'
import { createRecent, orLast } from './recent.ts'

/** Records of one kind in the store, as JSON text under `<prefix><id>`. */
export interface RecordTable<record> {
  /**
   * Returns the record from memory. Changes of other processes are seen within `cacheMs`, those of this one at once.
   */
  find(id: string): MaybePromise<record | undefined>
  /** Returns the current record. Throws `not-found`. */
  read(id: string): Promise<record>
  /** Resolves with false when the id is already in use. */
  insert(id: string, record: record): Promise<boolean>
  /** Replaces a record with the result of `change`, in one atomic step. Throws `not-found`. */
  change(id: string, change: (record: record) => record): Promise<{ readonly before: record; readonly after: record }>
  /** Returns the deleted record, or undefined if it could not be parsed. Throws `not-found`. */
  remove(id: string): Promise<record | undefined>
  /** Returns the records after `after` in ascending order of their ids, except those that cannot be parsed. */
  page(query: PageQuery): Promise<Page<record>>
}

export interface PageQuery {
  /** 1 to 1,000. */
  readonly limit: number
  readonly after?: string
}

export interface Page<record> {
  readonly records: readonly record[]
  readonly hasMore: boolean
}

export interface RecordTableOptions<record> {
  readonly store: Store
  readonly now: () => number
  readonly prefix: string
  /** The name of a record in messages, such as `virtual key`. */
  readonly label: string
  /** Parses a stored value. Returns undefined if it is not a record. */
  readonly parse: (value: unknown) => record | undefined
  /** How long `find` may answer from memory, in milliseconds. @default 2,000 */
  readonly cacheMs?: number
  /** True if `find` returns the last known record while the store fails. @default false: it rejects */
  readonly keepsStale?: boolean
}

const CACHED = 10_000
const CACHE_MS = 2_000
/** Maximum number of tries of a change. Of concurrent changes of one record, one succeeds in each round. */
const MAX_ROUNDS = 50
const SAFE_ID = /^[\w.-]{1,128}$/

/** Returns true for an id that is safe in a path, the name of a counter and a message. */
export function isSafeId(id: string): boolean {
  return SAFE_ID.test(id)
}

export function createRecordTable<record>(options: RecordTableOptions<record>): RecordTable<record> {
  const { store, now, prefix, label, cacheMs = CACHE_MS, keepsStale = false } = options
  const recent = createRecent<record | undefined>(CACHED)
  /** The result of a look-up that began before a change must not be cached after it. */
  let changes = 0

  function load(id: string): MaybePromise<string | undefined> {
    return isSafeId(id) ? store.get(prefix + id) : undefined
  }

  async function present(id: string): Promise<string> {
    const text = await load(id)
    if (text !== undefined) return text
    throw new GatewayError(
      'not-found',
      `There is no ${label} with the id ${JSON.stringify(id.slice(0, 100))}. List the records to find its id.`,
    )
  }

  function parse(text: string): record {
    const parsed = options.parse(parseJson(text))
    if (parsed !== undefined) return parsed
    throw new GatewayError(
      'overloaded',
      `The stored record of this ${label} cannot be read. Requests with it are refused until the record is repaired.`,
    )
  }

  function find(id: string): MaybePromise<record | undefined> {
    const at = now()
    const known = recent.get(id, at)
    if (known !== undefined) return known.value
    const seen = changes
    const remember = (text: string | undefined): record | undefined => {
      const record = text === undefined ? undefined : parse(text)
      if (seen === changes) recent.put(id, record, at + cacheMs)
      return record
    }
    return orLast(load(id), remember, keepsStale ? recent.last(id) : undefined)
  }

  async function write(id: string, expected: string | undefined, value: string | undefined): Promise<boolean> {
    try {
      return await store.swap(prefix + id, expected, value)
    } finally {
      changes += 1
      recent.forget(id)
    }
  }

  async function change(
    id: string,
    make: (record: record) => record,
  ): Promise<{ readonly before: record; readonly after: record }> {
    for (let round = 0; round < MAX_ROUNDS; round += 1) {
      const text = await present(id)
      const before = parse(text)
      const after = make(before)
      if (await write(id, text, JSON.stringify(after))) return { before, after }
    }
    throw contended()
  }

  async function remove(id: string): Promise<record | undefined> {
    for (let round = 0; round < MAX_ROUNDS; round += 1) {
      const text = await present(id)
      if (await write(id, text, undefined)) return options.parse(parseJson(text))
    }
    throw contended()
  }

  function contended(): GatewayError {
    return new GatewayError('conflict', `This ${label} is being changed by other requests. Retry.`)
  }

  async function page({ limit, after }: PageQuery): Promise<Page<record>> {
    const from = after === undefined ? {} : { after: prefix + after }
    const keys = await store.list(prefix, { limit: limit + 1, ...from })
    const texts = await Promise.all(keys.slice(0, limit).map((key) => store.get(key)))
    const records = texts.map((text) => (text === undefined ? undefined : options.parse(parseJson(text))))
    return { records: records.filter((record) => record !== undefined), hasMore: keys.length > limit }
  }

  return {
    find,
    read: async (id) => parse(await present(id)),
    insert: (id, record) => write(id, undefined, JSON.stringify(record)),
    change,
    remove,
    page,
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
