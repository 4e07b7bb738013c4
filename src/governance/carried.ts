import { chain, isPromise, type MaybePromise } from '../core/async.ts'
import { DURATION_CODES, type Level, periodOf, type Store } from '../core/store.ts'
import { CARRIED_MS, type CarriedLimits, type CarryOver } from './key-windows.ts'
import { counterName, MAX_SETBACK_MS, type Limit } from './limits.ts'
import { billedInHour, billedName } from './usage-tally.ts'

/** One window of the budget of an owner. */
export type BudgetWindow = Pick<Limit, 'counter' | 'owner' | 'every' | 'period'>

/** The amount billed in a window, including the time before the budget had this window. */
export interface SpentInWindow extends Level {
  /** The part of `spent` that is missing in the counter. */
  readonly carried: number
}

/**
 * Returns the amount spent in each window. A counter contains only amounts that were billed while its window was in
 * force. If the budget is new or its window has changed, the missing amount is read from the usage tallies.
 *
 * The tallies are read before the counters. A settlement adds to both in one step, so a settlement between the two
 * reads cannot be taken for a missing amount.
 */
export function readSpent(
  store: Pick<Store, 'levels' | 'tallies'>,
  windows: readonly BudgetWindow[],
  now: number,
): MaybePromise<readonly SpentInWindow[]> {
  if (windows.length === 0) return []
  const billed = windows.map((window) => billedTallies(window, now))
  const names = [...new Set(billed.flatMap((of) => of.names))]
  return chain(names.length === 0 ? [] : store.tallies(names), (tallies) => {
    const amountsOf = new Map(names.map((name, index) => [name, tallies[index]]))
    return chain(store.levels(windows.map(({ counter }) => counter)), (levels) =>
      billed.map((of, index) => {
        const sum = of.names.reduce((total, name) => total + (amountsOf.get(name)?.[of.field] ?? 0), 0)
        const { spent, held } = levels[index] ?? { spent: 0, held: 0 }
        return { spent: Math.max(spent, sum), held, carried: Math.max(0, sum - spent) }
      }),
    )
  })
}

/** Maximum duration of a request, in milliseconds. */
const RUNNING_MS = 600_000

/**
 * Returns the amounts that running requests hold in other windows of each owner: they began before the window changed.
 * Must be called before `readSpent`, so that a settlement between the two reads is counted twice, not omitted.
 */
function readHeldElsewhere(
  store: Pick<Store, 'levels'>,
  windows: readonly BudgetWindow[],
  now: number,
): MaybePromise<readonly number[]> {
  const others = windows.map((window) => otherCounters(window, now))
  return chain(store.levels(others.flat()), (levels) => {
    let at = 0
    return others.map(({ length }) => levels.slice(at, (at += length)).reduce((sum, { held }) => sum + held, 0))
  })
}

function otherCounters({ owner, every }: BudgetWindow, now: number): readonly string[] {
  const counters: string[] = []
  for (const code of DURATION_CODES) {
    if (code === every) continue
    for (let { start, end } = periodOf(now - RUNNING_MS, code); start <= now; { start, end } = periodOf(end, code)) {
      counters.push(counterName('budget', owner, code, { start, end }))
    }
  }
  return counters
}

const MAX_REMEMBERED = 10_000

interface Carried {
  readonly counter: string
  readonly carried: number
  readonly held: number
  readonly until: number
}

/** @param toleratesFailure True if a budget uses the last amount that was read, or 0, while the store fails. */
export function createCarryOver(store: Pick<Store, 'levels' | 'tallies'>, toleratesFailure: boolean): CarryOver {
  /** Keyed by owner, because a budget that returns to an earlier window lacks the amounts billed in between. */
  const known = new Map<string, Carried>()

  /**
   * Remembers the carried amount. Settlements between the reads of tallies and counters lower the result, so an
   * earlier, greater amount is retained.
   */
  function remember(limit: Limit, read: number, held: number, now: number): void {
    const carried = Math.max(read, recall(limit)?.carried ?? 0)
    if (known.size >= MAX_REMEMBERED) known.clear()
    known.set(limit.owner, { counter: limit.counter, carried, held, until: held === 0 ? now + CARRIED_MS : now })
  }

  function recall({ kind, owner, counter }: Limit): Carried | undefined {
    const last = kind === 'budget' ? known.get(owner) : undefined
    return last?.counter === counter ? last : undefined
  }

  function withCarried(limits: readonly Limit[]): CarriedLimits {
    let isFinal = true
    const carrying = limits.map((limit) => {
      const { carried, held } = recall(limit) ?? NOTHING_CARRIED
      if (held > 0) isFinal = false
      return carried + held === 0 ? limit : { ...limit, carried: carried + held }
    })
    return { limits: carrying, isFinal }
  }

  function readAgain(limits: readonly Limit[], unread: readonly Limit[], now: number): MaybePromise<CarriedLimits> {
    return chain(readHeldElsewhere(store, unread, now), (held) =>
      chain(readSpent(store, unread, now), (spent) => {
        for (const [index, limit] of unread.entries()) {
          remember(limit, spent[index]?.carried ?? 0, held[index] ?? 0, now)
        }
        return withCarried(limits)
      }),
    )
  }

  return (limits, now) => {
    const unread = limits.filter((limit) => limit.kind === 'budget' && (recall(limit)?.until ?? 0) <= now)
    if (unread.length === 0) return withCarried(limits)
    const read = readAgain(limits, unread, now)
    return toleratesFailure && isPromise(read) ? read.catch(() => withCarried(limits)) : read
  }
}

const NOTHING_CARRIED = { carried: 0, held: 0 }

/**
 * Returns the tallies, and the field in each of them, whose sum is the amount that was billed to an owner in a window.
 * Near midnight, the tally of the next day is included, because the clock may have been set back.
 */
function billedTallies(
  { owner, every, period }: BudgetWindow,
  now: number,
): { readonly names: readonly string[]; readonly field: string } {
  if (every === '1m') return { names: [], field: 'billed' }
  const names: string[] = []
  const end = Math.min(period.end, Math.max(now, period.start) + MAX_SETBACK_MS)
  for (let day = periodOf(period.start, '1d'); day.start < end; day = periodOf(day.end, '1d')) {
    names.push(billedName(owner, day.start))
  }
  return { names, field: every === '1h' ? billedInHour(period.start) : 'billed' }
}
