import type { Claim, Level, ReserveRequest, ReserveResult, Settlement } from '../../core/store.ts'
import { checkAmount, checkClaims } from '../reservation-rules.ts'
import { entryRequests } from '../wire.ts'
import type { RedisContext } from './client.ts'
import { APPEND } from './scripts.ts'
import { createSlot } from './slot.ts'

export interface RedisCounters {
  reserve(request: ReserveRequest): Promise<ReserveResult>
  settle(settlement: Settlement): Promise<boolean>
  levels(names: readonly string[]): Promise<readonly Level[]>
  tallies(names: readonly string[]): Promise<readonly Readonly<Record<string, number>>[]>
}

/** The part of a reservation that one owner holds. */
interface Taken {
  readonly owner: string
  readonly granted: number | undefined
  /** The places of the owner's claims in the request. */
  readonly places: readonly number[]
}

/** Maximum number of reservations whose owners this process remembers. */
const MAX_REMEMBERED = 100_000

/**
 * Reserves and settles. Without sharding there is one owner, and each step is one call.
 *
 * With sharding, a reservation over several owners is made owner by owner, starting with the key, so that a key above
 * its own limits never holds a part of a shared budget. A refusal releases the amounts of the earlier owners. At least
 * the granted amounts are held at any time, so no limit is exceeded.
 */
export function createCounters(context: RedisContext): RedisCounters {
  const { run, limits, isSharded } = context
  const slot = createSlot(context)
  const owners = new Map<string, readonly string[]>()

  function grouped<item>(
    items: readonly item[],
    nameOf: (item: item) => string,
  ): ReadonlyMap<string, readonly number[]> {
    return isSharded ? byOwner(items, nameOf) : new Map([['', [...items.keys()]]])
  }

  async function reserve(request: ReserveRequest): Promise<ReserveResult> {
    checkClaims(request)
    const { reservationId, claims } = request
    const groups = grouped(claims, ({ counter }) => counter)
    const order = groups.size > 0 ? [...groups] : [[reservationOwner(reservationId), []] as const]
    if (isSharded)
      remember(
        reservationId,
        order.map(([owner]) => owner),
      )
    const levels = claims.map(() => 0)
    const taken: Taken[] = []
    let granted: number | undefined
    for (const [owner, places] of order) {
      const part = places.flatMap((place) => lowered(claims[place], granted) ?? [])
      const result = await slot.reserve(owner, { ...request, claims: part })
      for (const [index, level] of result.levels.entries()) levels[places[index] ?? 0] = level
      if (result.refused !== undefined) {
        const refused = places[result.refused] ?? 0
        const asked = taken.length + 1
        await giveBack(request, taken, levels)
        await readInto(
          levels,
          request,
          order.slice(asked).flatMap(([, rest]) => rest),
        )
        return { accepted: false, refused, levels }
      }
      taken.push({ owner, granted: result.granted, places })
      granted = result.granted ?? granted
    }
    for (const part of taken) await shrink(request, part, granted, levels)
    return { accepted: true, granted: granted ?? 0, levels }
  }

  async function giveBack(request: ReserveRequest, taken: readonly Taken[], levels: number[]): Promise<void> {
    const { reservationId, claims } = request
    for (const { owner, granted, places } of taken) {
      for (const place of places) levels[place] = (levels[place] ?? 0) - heldOf(claims[place], granted)
      await slot.settle(owner, { reservationId, charges: [], tallies: [] })
    }
    owners.delete(reservationId)
  }

  /** A refusal reports all levels, also those of owners that were not asked. */
  async function readInto(levels: number[], { claims }: ReserveRequest, places: readonly number[]): Promise<void> {
    if (places.length === 0) return
    const found = await readLevels(places.map((place) => claims[place]?.counter ?? ''))
    for (const [index, { spent, held }] of found.entries()) levels[places[index] ?? 0] = spent + held
  }

  /** All elastic claims of one request get the same grant: the smallest. */
  async function shrink(
    request: ReserveRequest,
    part: Taken,
    granted: number | undefined,
    levels: number[],
  ): Promise<void> {
    if (granted === undefined || part.granted === undefined || part.granted === granted) return
    const places = part.places.filter((place) => request.claims[place]?.elastic === true)
    for (const place of places) levels[place] = (levels[place] ?? 0) - (part.granted - granted)
    const counters = places.map((place) => request.claims[place]?.counter ?? '')
    await slot.shrink(part.owner, request.reservationId, counters, granted)
  }

  async function settle(settlement: Settlement): Promise<boolean> {
    for (const { counter, amount } of settlement.charges) checkAmount(counter, amount)
    return isSharded ? settleSharded(settlement) : (await slot.settle('', settlement)) === 'settled'
  }

  /**
   * Settles at the first owner that has the reservation, then at the others. Each owner marks the reservation as
   * settled, so a settlement that failed halfway can be repeated: it completes and charges nothing twice.
   */
  async function settleSharded(settlement: Settlement): Promise<boolean> {
    const { reservationId, entries = [] } = settlement
    const charges = byOwner(settlement.charges, ({ counter }) => counter)
    const tallies = byOwner(settlement.tallies, ({ name }) => name)
    const named = [...charges.keys(), ...tallies.keys()].toSorted()
    const candidates = owners.get(reservationId) ?? [...named, reservationOwner(reservationId)]
    const concerned = new Set([...(owners.get(reservationId) ?? []), ...named])
    const mark = concerned.size > 1
    const partOf = (owner: string): Settlement => ({
      reservationId,
      charges: (charges.get(owner) ?? []).flatMap((place) => settlement.charges[place] ?? []),
      tallies: (tallies.get(owner) ?? []).flatMap((place) => settlement.tallies[place] ?? []),
    })
    for (const owner of new Set(candidates)) {
      const result = await slot.settle(owner, partOf(owner), { mark })
      if (result === 'unknown') continue
      const others = [...concerned].filter((other) => other !== owner)
      await Promise.all(others.map((other) => slot.settle(other, partOf(other), { mark, force: true })))
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
    return gather(names, slot.levels, { spent: 0, held: 0 })
  }

  async function gather<found>(
    names: readonly string[],
    read: (owner: string, names: readonly string[]) => Promise<readonly found[]>,
    otherwise: found,
  ): Promise<readonly found[]> {
    const results = names.map(() => otherwise)
    const reads = [...grouped(names, (name) => name)].map(async ([owner, places]) => {
      const found = await read(
        owner,
        places.map((place) => names[place] ?? ''),
      )
      for (const [index, one] of found.entries()) results[places[index] ?? 0] = one
    })
    await Promise.all(reads)
    return results
  }

  return { reserve, settle, levels: readLevels, tallies: (names) => gather(names, slot.tallies, {}) }
}

/** Limits elastic claims to the amount that an earlier owner granted. */
function lowered(claim: Claim | undefined, granted: number | undefined): Claim | undefined {
  if (claim?.elastic !== true || granted === undefined) return claim
  return { ...claim, amount: Math.min(claim.amount, granted) }
}

function heldOf(claim: Claim | undefined, granted: number | undefined): number {
  return claim?.elastic === true ? (granted ?? 0) : (claim?.amount ?? 0)
}

/**
 * Returns the owner of a counter or tally. In cluster mode all data of one owner is in one slot.
 *
 * Governance names counters `<kind>:<owner>:<window>:<start>`, where an owner is `key:<id>` or `shared:<id>`, and
 * tallies `usage:<key id>:<window>:<start>`, `usage-by-model:…` and `billed:<owner>:…`. Another name is an owner of its own.
 */
function ownerOf(name: string): string {
  const [, counterOwner] = COUNTER.exec(name) ?? []
  if (counterOwner !== undefined) return counterOwner
  const [, keyId] = TALLY.exec(name) ?? []
  return keyId === undefined ? name : `key:${keyId}`
}

const COUNTER = /^(?:requests|tokens|budget|billed):((?:key|shared):.*):[^:]+:\d+$/s
const TALLY = /^usage(?:-by-model)?:(.*):[^:]+:\d+$/s

/** Groups the indexes of items by owner, in ascending order: keys before shared owners. */
function byOwner<item>(items: readonly item[], nameOf: (item: item) => string): ReadonlyMap<string, readonly number[]> {
  const groups = new Map<string, number[]>()
  for (const [index, item] of items.entries()) {
    const owner = ownerOf(nameOf(item))
    const group = groups.get(owner) ?? []
    groups.set(owner, group)
    group.push(index)
  }
  return new Map([...groups].toSorted(([a], [b]) => (a < b ? -1 : 1)))
}

/** The owner of a reservation without claims. */
function reservationOwner(reservationId: string): string {
  return `reservation:${reservationId}`
}
