/** What is left of limits, for pages that show it. Loaded with the first one. */
import type { Level, Store } from '../core/store.ts'
import type { LimitLevel } from './caller.ts'
import { earlierSteps, ROLLING_STEPS } from './levels.ts'
import type { Limit } from './limits.ts'
import type { LevelContext } from './windows.ts'

/** Resolves with the limits of levels at a time and their carried amounts, as a reservation uses them. */
export async function limitsOf(
  levels: readonly LimitLevel[],
  at: number,
  context: LevelContext,
): Promise<readonly Limit[]> {
  const windows = await Promise.all(levels.map((level) => level.windowsAt(at, context)))
  return windows.flatMap(({ limits }) => limits)
}

export interface LimitAmounts {
  readonly limit: Limit
  readonly spent: number
  /** Reserved by running requests. */
  readonly held: number
  /** What a further request may claim. */
  readonly remaining: number
  /**
   * When the calendar window ends, or when the first amount leaves a rolling window, in milliseconds since 1970. Undefined
   * for a rolling window without amounts, and for a window that ends when its session is idle.
   */
  readonly resetsAt: number | undefined
}

/** @param limits With their carried amounts. */
export async function readAmounts(
  store: Pick<Store, 'levels'>,
  limits: readonly Limit[],
): Promise<readonly LimitAmounts[]> {
  const counters = limits.map((limit) => [limit.counter, ...earlierSteps(limit)])
  const levels = counters.length === 0 ? [] : await store.levels(counters.flat())
  let offset = 0
  return limits.map((limit, index) => {
    const steps = levels.slice(offset, (offset += counters[index]?.length ?? 0))
    // The steps of a rolling window are what it carries. They are read again, because each leaves it at another time.
    const { carriedAmount = 0, carriedHeld = 0 } = limit.window.type === 'rolling' ? {} : limit
    const held = sum(steps.map((step) => step.held)) + carriedHeld
    const spent = sum(steps.map((step) => step.spent)) + carriedAmount - carriedHeld
    return { limit, spent, held, remaining: Math.max(0, limit.max - spent - held), resetsAt: resetOf(limit, steps) }
  })
}

/** @param steps From the current one to the earliest. */
function resetOf({ window, period }: Limit, steps: readonly Level[]): number | undefined {
  if (window.type === 'idle') return undefined
  if (window.type === 'calendar') return period.end
  const { stepMs, count } = ROLLING_STEPS[window.every]
  const first = steps.findLastIndex(({ spent, held }) => spent + held > 0)
  return first === -1 ? undefined : period.start + (count + 1 - first) * stepMs
}

function sum(amounts: readonly number[]): number {
  return amounts.reduce((total, amount) => total + amount, 0)
}
