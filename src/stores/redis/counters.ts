import type { Claim, Level, ReserveRequest, ReserveResult, Settlement } from '../../core/store.ts'
import {
  decodeText,
  encodeText,
  entryRequests,
  fieldOf,
  levelIn,
  listOf,
  numberOf,
  reserveRequest,
  settlementRequest,
  textOf,
  throwReserveError,
} from '../durable-store.ts'
import { checkAmount, checkClaims } from '../reservation-rules.ts'
import type { RedisContext } from './client.ts'
import { READ_LEVELS, READ_TALLIES, RESERVE, SETTLE, SHRINK } from './counter-scripts.ts'
import { APPEND } from './value-scripts.ts'

export interface RedisCounters {
  reserve(request: ReserveRequest): Promise<ReserveResult>
  settle(settlement: Settlement): Promise<boolean>
  levels(names: readonly string[]): Promise<readonly Level[]>
  tallies(names: readonly string[]): Promise<readonly Readonly<Record<string, number>>[]>
}

/** The part of a reservation that one owner has accepted. `indexes` are the positions of its claims in the request. */
interface AcceptedPart {
  readonly owner: string
  readonly granted: number | undefined
  readonly indexes: readonly number[]
}

/** Maximum number of reservations whose owners this process remembers. */
const MAX_REMEMBERED = 100_000

/**
 * Reserves and settles. Without sharding, there is one owner, and each step is one call.
 *
 * With sharding, a reservation that involves several owners is made one owner at a time. The key comes first, because
 * otherwise a key above its own limits could hold a part of a shared budget. A rejection releases the amounts held by
 * earlier owners. No limit is exceeded, because each owner holds at least the granted amount until the settlement.
 */
export function createCounters(context: RedisContext): RedisCounters {
  const { run, limits, isSharded } = context
  const slot = createSlot(context)
  const owners = new Map<string, readonly string[]>()

  function grouped<Item>(
    items: readonly Item[],
    nameOf: (item: Item) => string,
  ): ReadonlyMap<string, readonly number[]> {
    return isSharded ? byOwner(items, nameOf) : new Map([['', [...items.keys()]]])
  }

  async function reserve(request: ReserveRequest): Promise<ReserveResult> {
    checkClaims(request)
    const { reservationId, claims } = request
    const groups = grouped(claims, ({ counter }) => counter)
    const order: readonly (readonly [string, readonly number[]])[] =
      groups.size > 0 ? [...groups] : [[reservationOwner(reservationId), []]]
    if (isSharded)
      remember(
        reservationId,
        order.map(([owner]) => owner),
      )
    const levels = claims.map(() => 0)
    const accepted: AcceptedPart[] = []
    let granted: number | undefined
    for (const [owner, indexes] of order) {
      const part = indexes.flatMap((index) => limitedTo(granted, claims[index]) ?? [])
      const result = await slot.reserve(owner, { ...request, claims: part })
      for (const [at, level] of result.levels.entries()) levels[indexes[at] ?? 0] = level
      if (result.refused !== undefined) {
        await releaseAll(request, accepted, levels)
        const unread = order.slice(accepted.length + 1).flatMap(([, rest]) => rest)
        await readInto(levels, request, unread)
        return { accepted: false, refused: indexes[result.refused] ?? 0, levels }
      }
      accepted.push({ owner, granted: result.granted, indexes })
      granted = result.granted ?? granted
    }
    for (const part of accepted) await shrink(request, part, granted, levels)
    return { accepted: true, granted: granted ?? 0, levels }
  }

  async function releaseAll(
    { reservationId, claims }: ReserveRequest,
    accepted: readonly AcceptedPart[],
    levels: number[],
  ): Promise<void> {
    for (const { owner, granted, indexes } of accepted) {
      for (const index of indexes) levels[index] = (levels[index] ?? 0) - heldAmount(claims[index], granted)
      await slot.settle(owner, { reservationId, charges: [], tallies: [] })
    }
    owners.delete(reservationId)
  }

  /** Reads the levels of the remaining owners, because a rejection reports the levels of all claims. */
  async function readInto(levels: number[], { claims }: ReserveRequest, indexes: readonly number[]): Promise<void> {
    if (indexes.length === 0) return
    const found = await readLevels(indexes.map((index) => claims[index]?.counter ?? ''))
    for (const [at, { spent, held }] of found.entries()) levels[indexes[at] ?? 0] = spent + held
  }

  /** Reduces a part to the smallest grant, because all elastic claims of a request get the same grant. */
  async function shrink(
    { reservationId, claims }: ReserveRequest,
    part: AcceptedPart,
    granted: number | undefined,
    levels: number[],
  ): Promise<void> {
    if (granted === undefined || part.granted === undefined || part.granted === granted) return
    const indexes = part.indexes.filter((index) => claims[index]?.elastic === true)
    for (const index of indexes) levels[index] = (levels[index] ?? 0) - (part.granted - granted)
    const counters = indexes.map((index) => claims[index]?.counter ?? '')
    await slot.shrink(part.owner, reservationId, counters, granted)
  }

  async function settle(settlement: Settlement): Promise<boolean> {
    for (const { counter, amount } of settlement.charges) checkAmount(counter, amount)
    return isSharded ? settleSharded(settlement) : (await slot.settle('', settlement)) === 'settled'
  }

  /**
   * Settles with the first owner that has the reservation, then with the others. Each owner marks the reservation as
   * settled, so a repeated settlement completes only the missing parts.
   */
  async function settleSharded(settlement: Settlement): Promise<boolean> {
    const { reservationId, entries = [] } = settlement
    const charges = byOwner(settlement.charges, ({ counter }) => counter)
    const tallies = byOwner(settlement.tallies, ({ name }) => name)
    const named = [...charges.keys(), ...tallies.keys()].toSorted()
    const remembered = owners.get(reservationId)
    const candidates = new Set(remembered ?? [...named, reservationOwner(reservationId)])
    const involved = new Set([...(remembered ?? []), ...named])
    const mark = involved.size > 1
    const partOf = (owner: string): Settlement => ({
      reservationId,
      charges: (charges.get(owner) ?? []).flatMap((index) => settlement.charges[index] ?? []),
      tallies: (tallies.get(owner) ?? []).flatMap((index) => settlement.tallies[index] ?? []),
    })
    for (const owner of candidates) {
      const result = await slot.settle(owner, partOf(owner), { mark })
      if (result === 'unknown') continue
      const otherOwners = [...involved].filter((other) => other !== owner)
      await Promise.all(otherOwners.map((other) => slot.settle(other, partOf(other), { mark, force: true })))
      if (result === 'settled' && entries.length > 0) {
        await run(APPEND, undefined, { limits, entries: entryRequests(entries, limits) })
      }
      owners.delete(reservationId)
      return result === 'settled'
    }
    return false
  }

  function remember(reservationId: string, names: readonly string[]): void {
    owners.set(reservationId, names)
    for (const oldest of owners.keys()) {
      if (owners.size <= MAX_REMEMBERED) return
      owners.delete(oldest)
    }
  }

  async function readLevels(names: readonly string[]): Promise<readonly Level[]> {
    return readByOwner(names, slot.levels, { spent: 0, held: 0 })
  }

  async function readByOwner<Found>(
    names: readonly string[],
    read: (owner: string, names: readonly string[]) => Promise<readonly Found[]>,
    absent: Found,
  ): Promise<readonly Found[]> {
    const results = names.map(() => absent)
    const reads = Array.from(
      grouped(names, (name) => name),
      async ([owner, indexes]) => {
        const ownNames = indexes.map((index) => names[index] ?? '')
        for (const [at, found] of (await read(owner, ownNames)).entries()) results[indexes[at] ?? 0] = found
      },
    )
    await Promise.all(reads)
    return results
  }

  return { reserve, settle, levels: readLevels, tallies: (names) => readByOwner(names, slot.tallies, {}) }
}

function limitedTo(granted: number | undefined, claim: Claim | undefined): Claim | undefined {
  if (claim?.elastic !== true || granted === undefined) return claim
  return { ...claim, amount: Math.min(claim.amount, granted) }
}

function heldAmount(claim: Claim | undefined, granted: number | undefined): number {
  return claim?.elastic === true ? (granted ?? 0) : (claim?.amount ?? 0)
}

/**
 * Returns the owner of a counter or tally. In cluster mode, each owner's data is in one slot.
 *
 * Governance names counters, and tallies of kind `billed`, `<kind>:<owner>:<window>:<start>`, where an owner is
 * `key:<id>` or `shared:<id>`. Other tallies are named `usage:<key id>:<window>:<start>` or `usage-by-model:…`. Any
 * other name is a separate owner.
 */
function ownerOf(name: string): string {
  const [, counterOwner] = COUNTER.exec(name) ?? []
  if (counterOwner !== undefined) return counterOwner
  const [, keyId] = TALLY.exec(name) ?? []
  return keyId === undefined ? name : `key:${keyId}`
}

const COUNTER = /^(?:requests|tokens|budget|billed):((?:key|shared):.*):[^:]+:\d+$/s
const TALLY = /^usage(?:-by-model)?:(.*):[^:]+:\d+$/s

/** Groups item indexes by owner, in ascending order: keys before shared owners. */
function byOwner<Item>(items: readonly Item[], nameOf: (item: Item) => string): ReadonlyMap<string, readonly number[]> {
  const groups = new Map<string, number[]>()
  for (const [index, item] of items.entries()) {
    const owner = ownerOf(nameOf(item))
    const group = groups.get(owner) ?? []
    groups.set(owner, group)
    group.push(index)
  }
  return new Map([...groups].toSorted(([a], [b]) => (a < b ? -1 : 1)))
}

function reservationOwner(reservationId: string): string {
  return `reservation:${reservationId}`
}

type SlotResult =
  | { readonly refused: number; readonly levels: readonly number[] }
  | { readonly refused?: undefined; readonly granted: number | undefined; readonly levels: readonly number[] }

interface SettleOptions {
  /** Marks the reservation as settled, which prevents a repeated settlement in this slot. */
  readonly mark?: boolean
  /** Charges without a reservation in this slot, because another slot has settled it. */
  readonly force?: boolean
}

type SettleResult = 'settled' | 'repeated' | 'unknown'

/** Operations on one owner's data. Each is one call. */
interface Slot {
  reserve(owner: string, request: ReserveRequest): Promise<SlotResult>
  settle(owner: string, settlement: Settlement, options?: SettleOptions): Promise<SettleResult>
  /** Lowers the amount that a reservation holds in these counters to `amount`. */
  shrink(owner: string, reservationId: string, counters: readonly string[], amount: number): Promise<void>
  levels(owner: string, counters: readonly string[]): Promise<readonly Level[]>
  tallies(owner: string, names: readonly string[]): Promise<readonly Readonly<Record<string, number>>[]>
}

function createSlot({ run, limits }: RedisContext): Slot {
  return {
    reserve: async (owner, request) => {
      const reply = await run(RESERVE, owner, reserveRequest(request))
      throwReserveError(reply)
      const levels = listOf(fieldOf(reply, 'levels')).map(numberOf)
      const refused = fieldOf(reply, 'refused')
      if (refused !== undefined) return { refused: numberOf(refused), levels }
      const isElastic = request.claims.some((claim) => claim.elastic === true)
      return { granted: isElastic ? numberOf(fieldOf(reply, 'granted')) : undefined, levels }
    },
    settle: async (owner, settlement, options = {}) => {
      const reply = await run(SETTLE, owner, { ...options, limits, ...settlementRequest(settlement, limits) })
      if (fieldOf(reply, 'settled') === true) return 'settled'
      return fieldOf(reply, 'repeated') === true ? 'repeated' : 'unknown'
    },
    shrink: async (owner, reservationId, counters, amount) => {
      const selected = Object.fromEntries(counters.map((counter) => [encodeText(counter), true]))
      await run(SHRINK, owner, { reservation: encodeText(reservationId), counters: selected, amount })
    },
    levels: async (owner, counters) => {
      const reply = await run(READ_LEVELS, owner, { counters: counters.map(encodeText) })
      return listOf(fieldOf(reply, 'levels')).map(levelIn)
    },
    tallies: async (owner, names) => {
      const reply = await run(READ_TALLIES, owner, { names: names.map(encodeText) })
      return listOf(fieldOf(reply, 'tallies')).map((fields) => readTally(listOf(fields)))
    },
  }
}

/** Parses the alternating names and values of a Redis hash. The name of each sum begins with `f`. */
function readTally(fields: readonly unknown[]): Readonly<Record<string, number>> {
  const amounts: [string, number][] = []
  for (let index = 0; index + 1 < fields.length; index += 2) {
    const name = textOf(fields[index])
    if (name.startsWith('f')) amounts.push([decodeText(name.slice(1)), numberOf(fields[index + 1])])
  }
  return Object.fromEntries(amounts)
}
