/** What happens to the requests of a customer near the end of a budget, before they are refused. */
import type { Route } from '../../core/ports.ts'
import type { Store } from '../../core/store.ts'
import type { Degradation, LimitLevel } from '../../governance/caller.ts'
import { limitsOf } from '../../governance/limit-amounts.ts'
import type { LevelContext } from '../../governance/windows.ts'
import { mayUse, type VirtualKey } from '../../governance/virtual-key.ts'
import type { CustomerPlan, DegradeOptions } from './options.ts'

type Steps = NonNullable<CustomerPlan['at']>

interface DegradeDependencies {
  readonly store: Pick<Store, 'levels'>
  readonly now: () => number
  readonly levelContext: () => LevelContext
}

/** Resolves with undefined if no budget has reached the first step. */
export async function degradationOf(
  at: Steps,
  levels: readonly LimitLevel[],
  { store, now, levelContext }: DegradeDependencies,
): Promise<Degradation | undefined> {
  const budgeted = levels.filter(({ hasBudget }) => hasBudget)
  const limits = budgeted.length === 0 ? [] : await limitsOf(budgeted, now(), levelContext())
  // The amount of one session says nothing about the budget of the customer.
  const budgets = limits.filter(
    ({ kind, window, models }) => kind === 'budget' && window.type !== 'idle' && models === undefined,
  )
  if (budgets.length === 0) return undefined
  const amounts = await store.levels(budgets.map(({ counter }) => counter))
  const shares = budgets.map(({ max, carriedAmount = 0 }, index) => {
    const { spent = 0, held = 0 } = amounts[index] ?? {}
    return max === 0 ? 1 : (carriedAmount + spent + held) / max
  })
  const options = optionsAt(at, Math.max(...shares))
  return options && new PlanDegradation(options)
}

/** A later step replaces what an earlier one says. */
function optionsAt(at: Steps, share: number): DegradeOptions | undefined {
  const reached = Object.entries(at)
    .filter(([step]) => share >= Number(step))
    .toSorted(([a], [b]) => Number(a) - Number(b))
  return reached.length === 0 ? undefined : Object.assign({}, ...reached.map(([, options]) => options))
}

/** A prompt has fewer tokens than bytes. */
class PlanDegradation implements Degradation {
  readonly #options: DegradeOptions
  #level: string | undefined
  #model: string | undefined

  constructor(options: DegradeOptions) {
    this.#options = options
  }

  get text(): string | undefined {
    const parts = [this.#level && `savings=${this.#level}`, this.#model && `model=${this.#model}`]
    return parts.filter((part) => part !== undefined).join(', ') || undefined
  }

  savingsLevel(): string | undefined {
    return (this.#level = this.#options.savings)
  }

  modelFor({ provider, model }: Route, key: VirtualKey, promptBytes: number): Route | undefined {
    const small = this.#options.model === 'small' && model.small !== undefined ? provider.model(model.small) : undefined
    if (small === undefined || small.family !== model.family || small.id === model.id) return undefined
    const name = `${provider.name}/${small.id}`
    if (promptBytes > small.contextWindowTokens || !mayUse(key, name)) return undefined
    this.#model = name
    return { provider, model: small }
  }
}
