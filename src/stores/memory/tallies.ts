import type { Tally } from '../../core/ports.ts'
import { createExpiryQueue, type Dated } from './expiry-queue.ts'

/** Sums for reports. They decide nothing, so a full pool drops the sum that was longest not added to. */
export interface Tallies {
  add(tally: Tally): void
  get(name: string): Readonly<Record<string, number>>
  clear(): void
}

interface Sums extends Dated {
  readonly name: string
  readonly amounts: Map<string, number>
}

/** Fields of one tally; those beyond are not counted. */
const MOST_FIELDS = 4_096
const GREATEST = Number.MAX_SAFE_INTEGER

/** `most` counts tallies and their fields together. */
export function createTallies(now: () => number, most: number): Tallies {
  const tallies = new Map<string, Sums>()
  const endings = createExpiryQueue<Sums>()
  let size = 0

  function sweep(at: number): void {
    for (let sums = endings.due(at); sums !== undefined; sums = endings.due(at)) remove(sums)
  }

  function remove(sums: Sums): void {
    tallies.delete(sums.name)
    endings.schedule(sums, Infinity)
    size -= 1 + sums.amounts.size
  }

  function add({ name, amounts, expiresAt }: Tally): void {
    const at = now()
    sweep(at)
    if (expiresAt !== undefined && expiresAt <= at) return
    const sums = moveToEnd(name)
    if (expiresAt !== undefined) endings.schedule(sums, expiresAt)
    size -= sums.amounts.size
    for (const field of Object.keys(amounts)) addField(sums.amounts, field, amounts[field] ?? 0)
    size += sums.amounts.size
    dropOldest()
  }

  /** A Map remembers the order of insertion, so the first one was longest not added to. */
  function moveToEnd(name: string): Sums {
    const found = tallies.get(name)
    if (found === undefined) size += 1
    else tallies.delete(name)
    const sums = found ?? { name, amounts: new Map(), dueAt: Infinity }
    tallies.set(name, sums)
    return sums
  }

  function dropOldest(): void {
    for (const sums of tallies.values()) {
      if (size <= most) return
      remove(sums)
    }
  }

  function get(name: string): Readonly<Record<string, number>> {
    sweep(now())
    return Object.fromEntries(tallies.get(name)?.amounts ?? [])
  }

  function clear(): void {
    tallies.clear()
    size = 0
    endings.clear()
  }

  return { add, get, clear }
}

/** Adds to one field within the bounds of a tally. An amount that is not a safe integer is ignored. */
export function addField(amounts: Map<string, number>, field: string, amount: number): void {
  if (!Number.isSafeInteger(amount)) return
  if (!amounts.has(field) && amounts.size >= MOST_FIELDS) return
  const sum = (amounts.get(field) ?? 0) + amount
  amounts.set(field, Math.min(GREATEST, Math.max(-GREATEST, sum)))
}
