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
const MOST_FIELDS = 64
const GREATEST = Number.MAX_SAFE_INTEGER

export function createTallies(now: () => number, most: number): Tallies {
  const tallies = new Map<string, Sums>()
  const endings = createExpiryQueue<Sums>()

  function sweep(at: number): void {
    for (let sums = endings.due(at); sums !== undefined; sums = endings.due(at)) tallies.delete(sums.name)
  }

  function add({ name, amounts, expiresAt }: Tally): void {
    const at = now()
    sweep(at)
    if (expiresAt !== undefined && expiresAt <= at) return
    const sums = tallies.get(name) ?? { name, amounts: new Map(), dueAt: Infinity }
    tallies.delete(name)
    tallies.set(name, sums)
    if (expiresAt !== undefined) endings.schedule(sums, expiresAt)
    for (const [field, amount] of Object.entries(amounts)) addField(sums.amounts, field, amount)
    dropOldest()
  }

  function dropOldest(): void {
    for (const sums of tallies.values()) {
      if (tallies.size <= most) return
      tallies.delete(sums.name)
      endings.schedule(sums, Infinity)
    }
  }

  function get(name: string): Readonly<Record<string, number>> {
    sweep(now())
    return Object.fromEntries(tallies.get(name)?.amounts ?? [])
  }

  function clear(): void {
    tallies.clear()
    endings.clear()
  }

  return { add, get, clear }
}

function addField(amounts: Map<string, number>, field: string, amount: number): void {
  if (!Number.isSafeInteger(amount)) return
  if (!amounts.has(field) && amounts.size >= MOST_FIELDS) return
  const sum = (amounts.get(field) ?? 0) + amount
  amounts.set(field, Math.min(GREATEST, Math.max(-GREATEST, sum)))
}
