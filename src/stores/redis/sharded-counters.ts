import type { MaybePromise } from '../../core/async.ts'
import type { Claim, Level, ReserveRequest, ReserveResult, SettledEntry, Settlement } from '../../core/store.ts'
import {
  type BulkLimits,
  encodeText,
  createRemoteCounters,
  fieldOf,
  type RemoteCounters,
  toEntriesRequest,
  toSettlementRequest,
} from '../durable-store.ts'
import { checkAmount, checkClaims, heldAmount } from '../store-rules.ts'
import { SHRINK, OPERATION_SCRIPTS } from './counter-scripts.ts'
import type { RunScript } from './value-scripts.ts'

/** `indexes` are the positions of the owner's claims in the request. */
interface AcceptedPart {
  readonly owner: string
  /** Undefined without elastic claims. */
  readonly granted: number | undefined
  readonly indexes: readonly number[]
}

const MAX_REMEMBERED = 100_000

/** Reserves from one owner at a time, the key first, so that a key above its own limits holds no shared budget. */
export function createShardedCounters(run: RunScript, limits: BulkLimits): RemoteCounters {
  const owners = new Map<string, readonly string[]>()
  /** Ids of settled reservations for which the call that appends the entries failed. */
  const unappended = new Set<string>()
  const countersOf = (owner: string): RemoteCounters =>
    createRemoteCounters((operation, request) => run(OPERATION_SCRIPTS[operation], request, owner), limits)

  async function reserve(request: ReserveRequest): Promise<ReserveResult> {
    checkClaims(request)
    const { reservationId, claims } = request
    const groups = groupByOwner(claims, ({ counter }) => counter)
    const ownerGroups = groups.size > 0 ? [...groups] : [[reservationOwner(reservationId), []] as const]
    remember(reservationId, ownerGroups)
    const levels = claims.map(() => 0)
    const acceptedParts: AcceptedPart[] = []
    let granted: number | undefined
    for (const [owner, indexes] of ownerGroups) {
      const groupClaims = select(claims, indexes).map((claim) => limitClaim(claim, granted))
      const result = await countersOf(owner).reserve({ ...request, claims: groupClaims })
      for (const [position, level] of result.levels.entries()) levels[indexes[position] ?? 0] = level
      if (!result.accepted) {
        await releaseAll(request, acceptedParts, levels)
        // A rejection reports the levels of all claims.
        const laterIndexes = ownerGroups.slice(acceptedParts.length + 1).flatMap(([, groupIndexes]) => groupIndexes)
        const laterLevels = await readLevels(select(claims, laterIndexes).map(({ counter }) => counter))
        for (const [position, { spent, held }] of laterLevels.entries())
          levels[laterIndexes[position] ?? 0] = spent + held
        return { accepted: false, rejectedIndex: indexes[result.rejectedIndex] ?? 0, levels }
      }
      const isElastic = groupClaims.some(({ elastic }) => elastic === true)
      acceptedParts.push({ owner, granted: isElastic ? result.granted : undefined, indexes })
      if (isElastic) granted = result.granted
    }
    for (const part of acceptedParts) await shrink(request, part, granted, levels)
    return { accepted: true, granted: granted ?? 0, levels }
  }

  async function releaseAll(
    { reservationId, claims }: ReserveRequest,
    acceptedParts: readonly AcceptedPart[],
    levels: number[],
  ): Promise<void> {
    for (const { owner, granted, indexes } of acceptedParts) {
      for (const index of indexes) {
        const claim = claims[index]
        if (claim !== undefined) levels[index] = (levels[index] ?? 0) - heldAmount(claim, granted ?? 0)
      }
      await countersOf(owner).settle({ reservationId, charges: [], tallies: [] })
    }
    owners.delete(reservationId)
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
    const counters = Object.fromEntries(select(claims, indexes).map(({ counter }) => [encodeText(counter), true]))
    await run(SHRINK, { reservation: encodeText(reservationId), counters, amount: granted }, part.owner)
  }

  /** Each of several owners marks the reservation as settled, so a repeated call settles only the missing parts. */
  async function settle(settlement: Settlement): Promise<boolean> {
    const { reservationId, entries = [] } = settlement
    for (const { counter, amount } of settlement.charges) checkAmount(counter, amount)
    const charges = groupByOwner(settlement.charges, ({ counter }) => counter)
    const tallies = groupByOwner(settlement.tallies, ({ name }) => name)
    const chargedOwners = [...charges.keys(), ...tallies.keys()].toSorted(compareOwners)
    const reservedOwners = owners.get(reservationId)
    const involvedOwners = new Set([...(reservedOwners ?? []), ...chargedOwners])
    const shouldMark = involvedOwners.size > 1
    /** If `isForced`, charges an owner that lacks the reservation, because another owner has settled it. */
    const settlePart = (owner: string, isForced: boolean): Promise<unknown> => {
      const part = {
        reservationId,
        charges: select(settlement.charges, charges.get(owner)),
        tallies: select(settlement.tallies, tallies.get(owner)),
      }
      return run(
        OPERATION_SCRIPTS.settle_reservation,
        { ...toSettlementRequest(part, limits), mark: shouldMark, force: isForced },
        owner,
      )
    }
    for (const owner of reservedOwners ?? new Set([...chargedOwners, reservationOwner(reservationId)])) {
      const reply = await settlePart(owner, false)
      const isSettled = fieldOf(reply, 'settled') === true
      if (!isSettled && fieldOf(reply, 'repeated') !== true) continue
      const otherOwners = [...involvedOwners].filter((other) => other !== owner)
      // A failure of another owner must not prevent appending the entries.
      const appending = isSettled || unappended.delete(reservationId) ? append(reservationId, entries) : undefined
      await Promise.all([appending, ...otherOwners.map((other) => settlePart(other, true))])
      owners.delete(reservationId)
      return isSettled
    }
    return false
  }

  async function append(reservationId: string, entries: readonly SettledEntry[]): Promise<void> {
    try {
      if (entries.length > 0) await run(OPERATION_SCRIPTS.append, toEntriesRequest(entries, limits))
    } catch (error) {
      if (unappended.size < MAX_REMEMBERED) unappended.add(reservationId)
      throw error
    }
  }

  function remember(reservationId: string, ownerGroups: readonly (readonly [owner: string, ...unknown[]])[]): void {
    owners.set(
      reservationId,
      ownerGroups.map(([owner]) => owner),
    )
    for (const oldest of owners.keys()) {
      if (owners.size <= MAX_REMEMBERED) return
      owners.delete(oldest)
    }
  }

  async function readByOwner<Value>(
    names: readonly string[],
    read: (counters: RemoteCounters, groupNames: readonly string[]) => MaybePromise<readonly Value[]>,
  ): Promise<readonly Value[]> {
    const results: Value[] = []
    const reads = Array.from(
      groupByOwner(names, (name) => name),
      async ([owner, indexes]) => {
        const groupResults = await read(countersOf(owner), select(names, indexes))
        for (const [position, result] of groupResults.entries()) results[indexes[position] ?? 0] = result
      },
    )
    await Promise.all(reads)
    return results
  }

  function readLevels(names: readonly string[]): Promise<readonly Level[]> {
    return readByOwner(names, (counters, groupNames) => counters.levels(groupNames))
  }

  return {
    reserve,
    settle,
    levels: readLevels,
    tallies: (names) => readByOwner(names, (counters, groupNames) => counters.tallies(groupNames)),
  }
}

function select<Item>(items: readonly Item[], indexes: readonly number[] = []): readonly Item[] {
  return indexes.flatMap((index) => items[index] ?? [])
}

function limitClaim(claim: Claim, granted: number | undefined): Claim {
  if (claim.elastic !== true || granted === undefined) return claim
  return { ...claim, amount: Math.min(claim.amount, granted) }
}

/** The patterns match the names that governance creates. Any other name is a separate owner. */
export function ownerOf(name: string): string {
  for (const pattern of OWNED_NAMES) {
    const owner = pattern.exec(name)?.[1]
    if (owner !== undefined) return owner
  }
  const keyId = KEY_TALLY_NAME.exec(name)?.[1]
  return keyId === undefined ? name : `key:${keyId}`
}

const OWNED_NAMES: readonly RegExp[] = [
  /^(?:requests|tokens|budget|billed):((?:key|shared|customer|user|session):.*):[^:]+:\d+$/s,
  /^usage-rows:(.*):\d+:\d+$/s,
]
const KEY_TALLY_NAME = /^usage(?:-by-model)?:(.*):[^:]+:\d+$/s

/** A level with few requests comes before one that many callers share. */
const OWNER_KINDS: readonly string[] = ['key', 'session', 'user', 'customer', 'shared']

function compareOwners(a: string, b: string): number {
  const kindOf = (owner: string): number => OWNER_KINDS.indexOf(owner.slice(0, owner.indexOf(':')))
  return kindOf(a) - kindOf(b) || (a < b ? -1 : 1)
}

/** Keys come before shared owners. */
function groupByOwner<Item>(
  items: readonly Item[],
  nameOf: (item: Item) => string,
): ReadonlyMap<string, readonly number[]> {
  const groups = new Map<string, number[]>()
  for (const [index, item] of items.entries()) {
    const owner = ownerOf(nameOf(item))
    const group = groups.get(owner) ?? []
    groups.set(owner, group)
    group.push(index)
  }
  return new Map([...groups].toSorted(([a], [b]) => compareOwners(a, b)))
}

function reservationOwner(reservationId: string): string {
  return `reservation:${reservationId}`
}
