/** The gateway: plans, an offline vendor, and the events of budgets. */
import { type BudgetEvent, createGateway, type CustomerPlan, memoryStore } from 'sluice'
import { extractive } from 'sluice/testing'
import { stripeBilling } from './stripe.ts'

/** What the application sells. `limits` is the part that the gateway enforces. */
export interface Offer {
  readonly name: string
  readonly text: string
  readonly limits: CustomerPlan
}

export const OFFERS: Readonly<Record<string, Offer>> = {
  free: {
    name: 'Free',
    text: 'The small model, for up to $0.10 a day and $0.50 a month.',
    limits: {
      budgets: [
        { limitUsd: 0.1, window: '1d' },
        { limitUsd: 0.5, window: '1M' },
      ],
      permissions: { allowedModels: ['vendor/extractive-small'] },
      perSession: { requests: 50, sameTurn: 4 },
    },
  },
  pro: {
    name: 'Pro',
    text: 'Both models, for up to $1 a day and $5 a month.',
    limits: {
      budgets: [
        { limitUsd: 1, window: '1d' },
        { limitUsd: 5, window: '1M' },
      ],
      perUser: [{ requests: 60, window: '1h' }],
      perSession: { limitUsd: 1.5, requests: 200, sameTurn: 4 },
      // Near the end of a budget, the small model answers instead of no model.
      at: { 0.9: { model: 'small' } },
    },
  },
  team: {
    name: 'Team',
    text: 'Teams with budgets of their own, for up to $10 a month together.',
    limits: {
      budgets: [{ limitUsd: 10, window: '1M' }],
      perUser: [
        { limitUsd: 2, window: '1d' },
        { requests: 120, window: '1h' },
      ],
      perSession: { limitUsd: 2, requests: 200, sameTurn: 4 },
    },
  },
}

/** Prices a hundred times those of a real model, so that a few answers use up a budget. */
const vendor = extractive({
  name: 'vendor',
  price: { input: 100, output: 400 },
  smallPrice: { input: 10, output: 40 },
})

export const MODELS: Readonly<Record<string, string>> = {
  'vendor/extractive': 'Large',
  'vendor/extractive-small': 'Small',
}

const MAX_EVENTS = 100

/** The newest events first. A real application sends them by mail, or uses `webhook()` of sluice/billing. */
export const budgetEvents: BudgetEvent[] = []

/** The clock of the demo: demo-data.ts lets it begin 30 days ago, so that the pages have something to show. */
export const clock = { behindMs: 0 }

export const gateway = createGateway({
  providers: [vendor],
  // Use sqliteStore(), redisStore() or postgresStore() to keep customers and their usage.
  store: memoryStore(),
  margin: 1.2,
  plans: Object.fromEntries(Object.entries(OFFERS).map(([name, { limits }]) => [name, limits])),
  // Customers are created when they sign up, here in demo-data.ts.
  customers: { defaultPlan: 'free', autoCreate: false },
  plugins: [
    stripeBilling,
    {
      name: 'budget-events',
      onBudget(event) {
        // An event may be delivered twice, with the same id.
        if (budgetEvents.some(({ id }) => id === event.id)) return
        budgetEvents.unshift(event)
        budgetEvents.length = Math.min(budgetEvents.length, MAX_EVENTS)
      },
    },
  ],
  log: () => {},
  runtime: { now: () => Date.now() - clock.behindMs },
})
