import type { Level, ReserveRequest, Settlement } from '../../core/store.ts'
import { endedCounter, takenReservationId } from '../reservation-rules.ts'
import { claimRequest, decodeText, encodeText, fieldOf, listOf, numberOf, settlementRequest, textOf } from '../wire.ts'
import type { RedisContext } from './client.ts'
import { LEVELS, READ_TALLIES, RESERVE, SETTLE, SHRINK } from './scripts.ts'

export type SlotResult =
  | { readonly refused: number; readonly levels: readonly number[] }
  /** `granted` is undefined without elastic claims. */
  | { readonly refused?: undefined; readonly granted: number | undefined; readonly levels: readonly number[] }

/** Options of one slot in a settlement over several slots. */
export interface SettleOptions {
  /** Marks the reservation as settled, so that a repeated settlement has no effect in this slot. */
  readonly mark?: boolean
  /** Charges without a reservation in this slot, because the slot with the reservation has settled it. */
  readonly force?: boolean
}

/** `before`: the reservation was settled and marked earlier. */
export type SettleResult = 'settled' | 'before' | 'unknown'

/** The steps on the data of one owner: one call each. */
export interface Slot {
  reserve(owner: string, request: ReserveRequest): Promise<SlotResult>
  settle(owner: string, settlement: Settlement, options?: SettleOptions): Promise<SettleResult>
  /** Lowers the amount that a reservation holds of these counters to `amount`. */
  shrink(owner: string, ticket: string, counters: readonly string[], amount: number): Promise<void>
  levels(owner: string, counters: readonly string[]): Promise<readonly Level[]>
  tallies(owner: string, names: readonly string[]): Promise<readonly Readonly<Record<string, number>>[]>
}

export function createSlot({ run, limits }: RedisContext): Slot {
  async function reserve(owner: string, request: ReserveRequest): Promise<SlotResult> {
    const { reservationId, claims, least, expiresAfterMs } = request
    const reply = await run(RESERVE, owner, {
      ticket: encodeText(reservationId),
      claims: claims.map(claimRequest),
      lapsesAfter: expiresAfterMs,
      ...(least !== undefined && { least }),
    })
    const error = fieldOf(reply, 'error')
    if (error === 'taken') throw takenReservationId()
    if (error === 'ended') throw endedCounter(decodeText(textOf(fieldOf(reply, 'counter'))))
    const levels = listOf(fieldOf(reply, 'levels')).map(numberOf)
    const refused = fieldOf(reply, 'refused')
    if (refused !== undefined) return { refused: numberOf(refused), levels }
    const isElastic = claims.some((claim) => claim.elastic === true)
    return { granted: isElastic ? numberOf(fieldOf(reply, 'granted')) : undefined, levels }
  }

  async function settle(owner: string, settlement: Settlement, options: SettleOptions = {}): Promise<SettleResult> {
    const reply = await run(SETTLE, owner, { ...options, limits, ...settlementRequest(settlement, limits) })
    if (fieldOf(reply, 'settled') === true) return 'settled'
    return fieldOf(reply, 'before') === true ? 'before' : 'unknown'
  }

  async function shrink(owner: string, ticket: string, counters: readonly string[], amount: number): Promise<void> {
    const named = Object.fromEntries(counters.map((counter) => [encodeText(counter), true]))
    await run(SHRINK, owner, { ticket: encodeText(ticket), counters: named, amount })
  }

  async function levels(owner: string, counters: readonly string[]): Promise<readonly Level[]> {
    const reply = await run(LEVELS, owner, { counters: counters.map(encodeText) })
    return listOf(fieldOf(reply, 'levels')).map((level) => {
      const [spent = 0, held = 0] = listOf(level).map(numberOf)
      return { spent, held }
    })
  }

  async function tallies(
    owner: string,
    names: readonly string[],
  ): Promise<readonly Readonly<Record<string, number>>[]> {
    const reply = await run(READ_TALLIES, owner, { names: names.map(encodeText) })
    return listOf(fieldOf(reply, 'tallies')).map((fields) => amountsIn(listOf(fields)))
  }

  return { reserve, settle, shrink, levels, tallies }
}

/** Reads a hash: names and values alternate, and the name of a sum begins with `f`. */
function amountsIn(fields: readonly unknown[]): Readonly<Record<string, number>> {
  const amounts: [string, number][] = []
  for (let index = 0; index + 1 < fields.length; index += 2) {
    const name = textOf(fields[index])
    if (name.startsWith('f')) amounts.push([decodeText(name.slice(1)), numberOf(fields[index + 1])])
  }
  return Object.fromEntries(amounts)
}
