import { GatewayError } from '../../core/errors.ts'
import { createExpiryQueue, type Dated } from './expiry-queue.ts'
import { createOrderedKeys } from './ordered-keys.ts'

/** A pool of values is full at so many entries, or at so many bytes (two for each UTF-16 unit of key and value). */
export interface PoolBounds {
  readonly entries: number
  readonly bytes: number
}

/** Texts by key, in two pools that never push each other out. */
export interface Values {
  get(key: string): string | undefined
  /** Without `ttlMs` the value is kept until it is deleted; with it, it may also be dropped when its pool is full. */
  set(key: string, value: string, ttlMs: number | undefined): void
  delete(key: string): boolean
  list(prefix: string, after: string | undefined, limit: number): readonly string[]
  clear(): void
}

interface Entry extends Dated {
  readonly key: string
  readonly value: string
  readonly bytes: number
  readonly pool: Pool
}

/** Oldest use first: a Map remembers the order of insertion. */
interface Pool {
  readonly entries: Map<string, Entry>
  readonly bounds: PoolBounds
  bytes: number
}

/** What an entry costs beside its text, roughly. */
const OVERHEAD = 128

/** `kept` holds what has no end (key records): full, it refuses. `passing` holds what ends: full, it drops the least recently used. */
export function createValues(
  now: () => number,
  bounds: { readonly kept: PoolBounds; readonly passing: PoolBounds },
): Values {
  const kept: Pool = { entries: new Map(), bounds: bounds.kept, bytes: 0 }
  const passing: Pool = { entries: new Map(), bounds: bounds.passing, bytes: 0 }
  const keys = createOrderedKeys()
  const expiries = createExpiryQueue<Entry>()

  function remove(entry: Entry): void {
    entry.pool.entries.delete(entry.key)
    entry.pool.bytes -= entry.bytes
    expiries.schedule(entry, Infinity)
    keys.remove(entry.key)
  }

  function sweep(): void {
    const at = now()
    for (let entry = expiries.due(at); entry !== undefined; entry = expiries.due(at)) remove(entry)
  }

  function find(key: string): Entry | undefined {
    sweep()
    return kept.entries.get(key) ?? passing.entries.get(key)
  }

  function get(key: string): string | undefined {
    const entry = find(key)
    if (entry?.pool === passing) {
      passing.entries.delete(key)
      passing.entries.set(key, entry)
    }
    return entry?.value
  }

  function set(key: string, value: string, ttlMs: number | undefined): void {
    const old = find(key)
    const pool = ttlMs === undefined ? kept : passing
    const bytes = 2 * (key.length + value.length) + OVERHEAD
    refuseOverfull(pool, bytes, old)
    if (old !== undefined) remove(old)
    if (ttlMs !== undefined && !(ttlMs > 0)) return
    const entry: Entry = { key, value, bytes, pool, dueAt: Infinity }
    pool.entries.set(key, entry)
    pool.bytes += bytes
    keys.add(key)
    if (ttlMs !== undefined) expiries.schedule(entry, now() + ttlMs)
    dropLeastUsed()
  }

  function refuseOverfull(pool: Pool, bytes: number, old: Entry | undefined): void {
    const replaced = old?.pool === pool ? old : undefined
    const fits =
      pool === passing
        ? bytes <= pool.bounds.bytes
        : pool.entries.size + (replaced === undefined ? 1 : 0) <= pool.bounds.entries &&
          pool.bytes - (replaced?.bytes ?? 0) + bytes <= pool.bounds.bytes
    if (fits) return
    throw new GatewayError(
      'overloaded',
      'The in-memory store has no room for this value. Raise its bounds, or use a store that keeps its data elsewhere.',
    )
  }

  function dropLeastUsed(): void {
    for (const entry of passing.entries.values()) {
      if (passing.entries.size <= passing.bounds.entries && passing.bytes <= passing.bounds.bytes) return
      remove(entry)
    }
  }

  function deleteValue(key: string): boolean {
    const entry = find(key)
    if (entry !== undefined) remove(entry)
    return entry !== undefined
  }

  function list(prefix: string, after: string | undefined, limit: number): readonly string[] {
    sweep()
    return keys.list(prefix, after, limit)
  }

  function clear(): void {
    for (const pool of [kept, passing]) {
      pool.entries.clear()
      pool.bytes = 0
    }
    keys.clear()
    expiries.clear()
  }

  return { get, set, delete: deleteValue, list, clear }
}
