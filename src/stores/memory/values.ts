import { GatewayError } from '../../core/errors.ts'
import { createExpiryQueue } from './expiry-queue.ts'
import { createOrderedKeys } from './ordered-keys.ts'
import { createPool, type Entry, type Pool, type PoolBounds } from './pool.ts'

/** Texts by key, in two pools that never push each other out. */
export interface Values {
  get(key: string): string | undefined
  /** Without `ttlMs` the value is kept until it is deleted; with it, it may also be dropped when its pool is full. */
  set(key: string, value: string, ttlMs: number | undefined): void
  delete(key: string): boolean
  list(prefix: string, after: string | undefined, limit: number): readonly string[]
  clear(): void
}

/** What an entry costs beside its text, roughly. */
const OVERHEAD = 128

/**
 * `kept` holds what has no end (key records): full, it refuses. `passing` holds what ends: full, it drops the least recently
 * used of what it holds most of.
 */
export function createValues(
  now: () => number,
  bounds: { readonly kept: PoolBounds; readonly passing: PoolBounds },
): Values {
  const kept = createPool(bounds.kept)
  const passing = createPool(bounds.passing)
  const keys = createOrderedKeys()
  const expiries = createExpiryQueue<Entry>()

  function remove(entry: Entry): void {
    entry.pool.remove(entry)
    expiries.schedule(entry, Infinity)
    keys.remove(entry.key)
  }

  function sweep(): void {
    const at = now()
    for (let entry = expiries.due(at); entry !== undefined; entry = expiries.due(at)) remove(entry)
  }

  function find(key: string): Entry | undefined {
    sweep()
    return kept.get(key) ?? passing.get(key)
  }

  function get(key: string): string | undefined {
    const entry = find(key)
    if (entry?.pool === passing) passing.touch(entry)
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
    pool.put(entry)
    keys.add(key)
    if (ttlMs !== undefined) expiries.schedule(entry, now() + ttlMs)
    dropLeastUsed()
  }

  function refuseOverfull(pool: Pool, bytes: number, old: Entry | undefined): void {
    const replaced = old?.pool === pool ? old : undefined
    const fits =
      pool === passing
        ? bytes <= pool.bounds.bytes
        : pool.size + (replaced === undefined ? 1 : 0) <= pool.bounds.entries &&
          pool.bytes - (replaced?.bytes ?? 0) + bytes <= pool.bounds.bytes
    if (fits) return
    throw new GatewayError(
      'overloaded',
      'The in-memory store has no room for this value. Raise its bounds, or use a store that keeps its data elsewhere.',
    )
  }

  function dropLeastUsed(): void {
    for (let entry = passing.excess(); entry !== undefined; entry = passing.excess()) remove(entry)
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
    kept.clear()
    passing.clear()
    keys.clear()
    expiries.clear()
  }

  return { get, set, delete: deleteValue, list, clear }
}
