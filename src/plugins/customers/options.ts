import {
  checkFlag,
  expects,
  firstProblem,
  integerFrom,
  listOf,
  numberFrom,
  oneOf,
  type OptionCheck,
  type OptionProblem,
  optionsOf,
} from '../../core/check-options.ts'
import { DURATION_CODES, type DurationCode } from '../../core/store.ts'
import type { Payer } from '../../governance/caller.ts'

/** The window of a limit. */
export interface LimitWindowOptions {
  /** A minute, hour, day, week or month, which begins with the calendar in UTC. */
  readonly window: DurationCode
  /** True for the same length before now instead, with 30 days for a month. @default false */
  readonly rolling?: boolean
  /** Counts only models of these names, such as `*opus*` or `openai/*`. `*` matches any characters. @default all models */
  readonly models?: readonly string[]
}

/** A limit on the billed amount. */
export interface BudgetOptions extends LimitWindowOptions {
  /** Maximum billed amount in dollars, from 0 to 9,000,000. */
  readonly limitUsd: number
}

/** A limit on the number of requests, tokens, or both. */
export interface RateLimitOptions extends LimitWindowOptions {
  /** Maximum number of requests. @default no limit */
  readonly requests?: number
  /** Maximum number of prompt and completion tokens. @default no limit */
  readonly tokens?: number
}

/** Limits of each session: a conversation, or one run of an agent. */
export interface SessionLimitOptions {
  /** Maximum billed amount of the session in dollars. A request above it is refused with 402. @default no limit */
  readonly limitUsd?: number
  /** Maximum number of requests. A request above it is refused with 429, and must not be retried. @default no limit */
  readonly requests?: number
  /**
   * Maximum number of requests with the same last turn: the same tool calls with the same results, or the same messages.
   * Ends an agent that repeats itself. @default no limit
   */
  readonly sameTurn?: number
  /** Minutes without a request after which a session has its whole limits again, at most 44,640 (31 days). @default 60 */
  readonly idleMinutes?: number
}

/** What a customer may use, in addition to what its key permits. */
export interface CustomerPermissions {
  /** `<provider>/<model_id>`, exact or with a trailing `*`. @default all models */
  readonly allowedModels?: readonly string[]
  /** Maximum `max_tokens` of a request. @default no limit */
  readonly maxTokens?: number
  /** @default false */
  readonly disableTools?: boolean
}

/** What happens from a share of a budget on, before requests are refused. */
export interface DegradeOptions {
  /** Shortens prompts at this level, as `X-Savings-Level` does, unless the request has that header. */
  readonly savings?: 'min' | 'med' | 'max' | 'extreme'
  /** `small`: uses the small model of the requested model's family, if the caller may use it. */
  readonly model?: 'small'
}

/** What customers of a plan may spend. Changes apply to all customers of the plan at once. */
export interface CustomerPlan {
  /** Of the customer with all its users. Several windows may apply at once. @default no budget */
  readonly budgets?: readonly BudgetOptions[]
  /** @default no limit */
  readonly rateLimits?: readonly RateLimitOptions[]
  /** Limits of each user of the customer. @default no limit */
  readonly perUser?: readonly (BudgetOptions | RateLimitOptions)[]
  /** Limits of each session. @default no limit */
  readonly perSession?: SessionLimitOptions
  readonly permissions?: CustomerPermissions
  /** Replaces the margin of the gateway. @default the margin of the gateway */
  readonly margin?: number
  /** Who pays the vendor for requests whose context does not say so. @default 'operator' */
  readonly payer?: Payer
  /** True if budgets also count what the vendor charges a customer who pays it. @default false */
  readonly countsVendorCharge?: boolean
  /**
   * Shares of each budget, from 0 (exclusive) to 1, at which `onBudget` of plugins is called once per window. An empty list
   * switches the events off. @default [0.5, 0.8, 0.95, 1]
   */
  readonly warnAt?: readonly number[]
  /** By the share of a budget, such as `{ 0.8: { savings: 'med' }, 0.95: { model: 'small' } }`. @default nothing */
  readonly at?: Readonly<Record<number, DegradeOptions>>
}

/** How customers are created. */
export interface CustomersOptions {
  /** The plan of customers that have none, and of users and sessions without a customer. @default no limits */
  readonly defaultPlan?: string
  /** False to refuse requests of unknown customers with 403, instead of creating them. @default true */
  readonly autoCreate?: boolean
  /** Maximum number of customers that requests create. Above it, requests of unknown customers are refused. @default 1,000,000 */
  readonly maxCreated?: number
}

const MAX_USD = 9_000_000
const MAX_COUNT = 1_000_000_000_000
/** A month of 31 days. */
const MAX_IDLE_MINUTES = 44_640
/** All levels of a request together have at most 24 limits. */
const MAX_LIMITS_PER_LEVEL = 6

const dollars = numberFrom(0, MAX_USD, `a number of dollars from 0 to ${MAX_USD}`)
const count = integerFrom(0, MAX_COUNT)
const text = expects('a string', (value) => typeof value === 'string')

const WINDOW = {
  window: oneOf(...DURATION_CODES),
  rolling: checkFlag,
  models: listOf('a list of model names', text, 1),
}

export const BUDGET_FIELDS: Record<keyof BudgetOptions, OptionCheck> = { ...WINDOW, limitUsd: dollars }
export const RATE_FIELDS: Record<keyof RateLimitOptions, OptionCheck> = { ...WINDOW, requests: count, tokens: count }

const checkBudgetFields = optionsOf(BUDGET_FIELDS, ['limitUsd', 'window'])
const checkRate = firstProblem(optionsOf(RATE_FIELDS, ['window']), (value, path) => checkHasRate(value, path))

export function checkHasRate(value: unknown, path: string): OptionProblem | undefined {
  const { requests, tokens } = value as RateLimitOptions
  return requests === undefined && tokens === undefined
    ? { path, text: 'expected requests, tokens or both.' }
    : undefined
}

const checkAnyLimit: OptionCheck = (value, path) =>
  typeof value === 'object' && value !== null && 'limitUsd' in value
    ? checkBudgetFields(value, path)
    : checkRate(value, path)

/** Limits in a plan, or in the record of a customer. */
export function limitsOf(check: OptionCheck): OptionCheck {
  const checkList = listOf('a list of limits', check)
  return (value, path): OptionProblem | undefined => {
    const problem = checkList(value, path)
    if (problem !== undefined) return problem
    return (value as readonly unknown[]).length > MAX_LIMITS_PER_LEVEL
      ? { path, text: `expected at most ${MAX_LIMITS_PER_LEVEL} limits.` }
      : undefined
  }
}

export const PERMISSION_FIELDS: Record<keyof CustomerPermissions, OptionCheck> = {
  allowedModels: listOf('a list of model names', text),
  maxTokens: integerFrom(1, 1_000_000_000),
  disableTools: checkFlag,
}

const share = expects(
  'a number above 0, and at most 1',
  (value) => typeof value === 'number' && value > 0 && value <= 1,
)

export const checkShares: OptionCheck = listOf('a list of shares such as [0.5, 0.8, 1]', share)

const checkAt: OptionCheck = (value, path) => {
  if (typeof value !== 'object' || value === null)
    return { path, text: 'expected an object such as { 0.8: { savings: "med" } }.' }
  for (const [name, degrade] of Object.entries(value)) {
    const at = `${path}[${name}]`
    const problem = share(Number(name), at) ?? checkDegrade(degrade, at)
    if (problem !== undefined) return problem
  }
  return undefined
}

const checkDegrade = optionsOf({ savings: oneOf('min', 'med', 'max', 'extreme'), model: oneOf('small') })

const checkPlan = optionsOf({
  budgets: limitsOf(checkBudgetFields),
  rateLimits: limitsOf(checkRate),
  perUser: limitsOf(checkAnyLimit),
  perSession: optionsOf({
    limitUsd: dollars,
    requests: count,
    sameTurn: integerFrom(1, MAX_COUNT),
    idleMinutes: integerFrom(1, MAX_IDLE_MINUTES),
  }),
  permissions: optionsOf(PERMISSION_FIELDS),
  margin: numberFrom(0, 10),
  payer: oneOf('operator', 'customer'),
  countsVendorCharge: checkFlag,
  warnAt: checkShares,
  at: checkAt,
} satisfies Record<keyof CustomerPlan, OptionCheck>)

export const checkPlans: OptionCheck = (value, path) => {
  if (typeof value !== 'object' || value === null) return { path, text: 'expected an object with one plan per name.' }
  for (const [name, plan] of Object.entries(value)) {
    if (!/^[\w.-]{1,100}$/.test(name))
      return {
        path: `${path}.${name.slice(0, 100)}`,
        text: 'expected a name of letters, digits, dots, hyphens and underscores.',
      }
    const problem = checkPlan(plan, `${path}.${name}`)
    if (problem !== undefined) return problem
  }
  return undefined
}

export const checkCustomers: OptionCheck = optionsOf({
  defaultPlan: text,
  autoCreate: checkFlag,
  maxCreated: integerFrom(0, 1_000_000_000),
} satisfies Record<keyof CustomersOptions, OptionCheck>)

/** A misspelled plan would refuse every request with a context. */
export function checkDefaultPlan(
  { defaultPlan }: CustomersOptions,
  plans: Readonly<Record<string, CustomerPlan>>,
): OptionProblem | undefined {
  if (defaultPlan === undefined || Object.hasOwn(plans, defaultPlan)) return undefined
  const names = Object.keys(plans).join(', ') || 'none'
  return { path: 'customers.defaultPlan', text: `expected the name of one of the plans (${names}).` }
}
