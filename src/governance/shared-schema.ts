import * as z from 'zod/mini'
import { GatewayError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import { usd } from '../core/money.ts'
import type { DurationCode } from '../core/period.ts'
import * as field from './field-schema.ts'
import type { Allowance, Budget, RateLimit } from './virtual-key.ts'

/** A budget that keys refer to by `budget_id`. */
export interface BudgetFields {
  /** Letters, digits, dots, hyphens and underscores. */
  readonly id: string
  /** @default the id */
  readonly name?: string | undefined
  /** Dollars. */
  readonly max_limit: number
  /** @default '1M' */
  readonly reset_duration?: DurationCode | undefined
}

/** The body that creates a budget. */
export interface NewBudget extends Omit<BudgetFields, 'id'> {
  /** @default a new UUID */
  readonly id?: string | undefined
}

/** The body that changes a budget; absent fields stay. */
export interface BudgetChange {
  readonly name?: string | undefined
  readonly max_limit?: number | undefined
  readonly reset_duration?: DurationCode | undefined
}

/** Limits that keys refer to by `rate_limit_id`. */
export interface RateLimitFields {
  readonly id: string
  /** @default the id */
  readonly name?: string | undefined
  /** @default no limit */
  readonly request_max_limit?: number | null | undefined
  /** @default '1h' */
  readonly request_reset_duration?: DurationCode | undefined
  /** @default no limit */
  readonly token_max_limit?: number | null | undefined
  /** @default '1h' */
  readonly token_reset_duration?: DurationCode | undefined
}

/** The body that creates shared rate limits. */
export interface NewRateLimit extends Omit<RateLimitFields, 'id'> {
  /** @default a new UUID */
  readonly id?: string | undefined
}

/** The body that changes shared rate limits; absent fields stay, a limit of `null` goes. */
export interface RateLimitChange {
  readonly name?: string | undefined
  readonly request_max_limit?: number | null | undefined
  readonly request_reset_duration?: DurationCode | null | undefined
  readonly token_max_limit?: number | null | undefined
  readonly token_reset_duration?: DurationCode | null | undefined
}

const budgetFields = {
  id: field.recordId,
  name: z.optional(field.name),
  max_limit: field.dollars,
  reset_duration: z.optional(field.duration),
}

const rateLimitFields = {
  id: field.recordId,
  name: z.optional(field.name),
  request_max_limit: z.optional(z.nullable(field.count)),
  request_reset_duration: z.optional(field.duration),
  token_max_limit: z.optional(z.nullable(field.count)),
  token_reset_duration: z.optional(field.duration),
}

const changeableLimits = {
  name: z.optional(field.name),
  request_max_limit: z.optional(z.nullable(field.count)),
  request_reset_duration: z.optional(z.nullable(field.duration)),
  token_max_limit: z.optional(z.nullable(field.count)),
  token_reset_duration: z.optional(z.nullable(field.duration)),
}

const changeableBudget = {
  name: z.optional(field.name),
  max_limit: z.optional(field.dollars),
  reset_duration: z.optional(field.duration),
}

const error = { error: field.objectError }

/** The schema of a configured budget, for the schema of the whole configuration. */
export const configuredBudget: z.ZodMiniType<BudgetFields> = z.strictObject(budgetFields, error)

/** The schema of configured rate limits. */
export const configuredRateLimit: z.ZodMiniType<RateLimitFields> = z.strictObject(rateLimitFields, error)

const newBudget: z.ZodMiniType<BudgetFields> = z.strictObject(
  { ...field.ignored(['resets_at']), ...budgetFields },
  error,
)

const newRateLimit: z.ZodMiniType<RateLimitFields> = z.strictObject({ ...field.ignored([]), ...rateLimitFields }, error)

const budgetChange: z.ZodMiniType<BudgetChange> = z.strictObject(
  { ...field.ignored(['id', 'resets_at']), ...changeableBudget },
  error,
)

const rateLimitChange: z.ZodMiniType<RateLimitChange> = z.strictObject(
  { ...field.ignored(['id']), ...changeableLimits },
  error,
)

/** Reads a body that describes a shared budget; without an id it gets the given one. */
export function parseBudget(body: unknown, newId: string): Budget {
  return toBudget(field.parseWith(newBudget, withId(body, newId)))
}

/** Reads a body that describes shared rate limits; without an id they get the given one. */
export function parseRateLimit(body: unknown, newId: string): RateLimit {
  return toRateLimit(field.parseWith(newRateLimit, withId(body, newId)))
}

/** Reads the body of an update, which must change something. */
export function parseBudgetChange(body: unknown): BudgetChange {
  return changing(field.parseWith(budgetChange, body), changeableBudget, 'max_limit')
}

/** Reads the body of an update, which must change something. */
export function parseRateLimitChange(body: unknown): RateLimitChange {
  return changing(field.parseWith(rateLimitChange, body), changeableLimits, 'request_max_limit')
}

function withId(body: unknown, id: string): unknown {
  return isJsonObject(body) ? { id, ...body } : body
}

function changing<change extends object>(change: change, changeable: object, example: string): change {
  if (Object.keys(change).some((name) => Object.hasOwn(changeable, name))) return change
  throw new GatewayError(
    'invalid-admin-request',
    `The body changes nothing. Send the fields to change, such as ${example}.`,
  )
}

/** A budget as its creation or the configuration describes it. */
export function toBudget(given: BudgetFields): Budget {
  const limit = { max: usd(given.max_limit), every: given.reset_duration ?? '1M' }
  return { id: given.id, name: given.name ?? given.id, limit }
}

/** Rate limits as their creation or the configuration describes them. */
export function toRateLimit(given: RateLimitFields): RateLimit {
  return changeRateLimit({ id: given.id, name: given.name ?? given.id }, given)
}

/** The budget with the given fields set. What was spent in a window stays spent. */
export function changeBudget(budget: Budget, change: BudgetChange): Budget {
  const { limit } = budget
  const max = change.max_limit === undefined ? limit.max : usd(change.max_limit)
  return { ...budget, name: change.name ?? budget.name, limit: { max, every: change.reset_duration ?? limit.every } }
}

/** The limits with the given fields set. */
export function changeRateLimit(rateLimit: RateLimit, change: RateLimitChange): RateLimit {
  const requests = allowance(rateLimit.requests, change.request_max_limit, change.request_reset_duration)
  const tokens = allowance(rateLimit.tokens, change.token_max_limit, change.token_reset_duration)
  return {
    id: rateLimit.id,
    name: change.name ?? rateLimit.name,
    ...(requests !== undefined && { requests }),
    ...(tokens !== undefined && { tokens }),
  }
}

function allowance(
  current: Allowance | undefined,
  max: number | null | undefined,
  every: DurationCode | null | undefined,
): Allowance | undefined {
  const limit = max === undefined ? current?.max : max
  if (limit === undefined || limit === null || limit === field.UNLIMITED) return undefined
  return { max: limit, every: every ?? current?.every ?? '1h' }
}
