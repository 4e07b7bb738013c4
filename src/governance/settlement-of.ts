import { nano } from '../core/money.ts'
import type { Charge, SettledEntry, Settlement } from '../core/store.ts'
import { countable } from './claims.ts'
import type { KeyWindows } from './key-windows.ts'
import { forgottenAt, type Limit } from './limits-in-force.ts'
import type { Used } from './reservation.ts'
import { talliesOf } from './usage-tally.ts'

interface Settled {
  readonly reservationId: string
  /** Those of the moment when the places were taken. */
  readonly windows: KeyWindows
  readonly limits: readonly Limit[]
  readonly used: Used
  readonly entries: readonly SettledEntry[]
}

export function settlementOf({ reservationId, windows, limits, used, entries }: Settled): Settlement {
  const tokens = countable(used.promptTokens + used.completionTokens)
  const amounts = { requests: 1, tokens, budget: used.billed }
  const charges: Charge[] = []
  for (const { counter, kind, every, period } of limits) {
    const amount = amounts[kind]
    if (amount > 0) charges.push({ counter, amount, expiresAt: forgottenAt(every, period) })
  }
  return { reservationId, charges, tallies: talliesOf(windows.tallies, used), entries }
}

/** Clamps usage to whole numbers of at least 0. If the billed amount is not a number, bills what was held. */
export function checkedUsage(used: Used, held: number): Used {
  return {
    promptTokens: orElse(used.promptTokens, 0),
    completionTokens: orElse(used.completionTokens, 0),
    savedTokens: Number.isSafeInteger(used.savedTokens) ? used.savedTokens : 0,
    theoretical: nano(orElse(used.theoretical, 0)),
    actual: nano(orElse(used.actual, 0)),
    billed: nano(orElse(used.billed, held)),
    model: used.model,
  }
}

function orElse(amount: number, otherwise: number): number {
  return Number.isFinite(amount) ? countable(amount) : otherwise
}
