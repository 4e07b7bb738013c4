import * as z from 'zod/mini'
import { GatewayError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import { usd } from '../core/money.ts'
import type { DurationCode } from '../core/period.ts'
import type { BudgetChange, ConfiguredBudget, ConfiguredRateLimit, RateLimitChange } from './admin-api.ts'
import type { WireForm } from '../core/field-names.ts'
import * as field from './field-schema.ts'
import type { Allowance, Budget, RateLimit } from './virtual-key.ts'

const changeableBudget = {
  name: z.optional(field.name),
  max_limit: z.optional(field.dollars),
  reset_duration: z.optional(field.duration),
}

const changeableLimits = {
  name: z.optional(field.name),
  request_max_limit: z.optional(z.nullable(field.count)),
  request_reset_duration: z.optional(z.nullable(field.duration)),
  token_max_limit: z.optional(z.nullable(field.count)),
  token_reset_duration: z.optional(z.nullable(field.duration)),
}

const budgetFields = { ...changeableBudget, id: field.recordId, max_limit: field.dollars }
const rateLimitFields = { ...changeableLimits, id: field.recordId }

/** The schema of a configured budget, for the schema of the whole configuration. */
export const configuredBudget: Schema<ConfiguredBudget> = field.record(budgetFields)

/** The schema of configured rate limits. */
export const configuredRateLimit: Schema<ConfiguredRateLimit> = field.record(rateLimitFields)

type Schema<record> = z.ZodMiniType<WireForm<record>>

const newBudget: Schema<ConfiguredBudget> = field.record(budgetFields, field.ignored(['resets_at']))
const newRateLimit: Schema<ConfiguredRateLimit> = field.record(rateLimitFields, field.ignored([]))
const budgetChange: Schema<BudgetChange> = field.record(changeableBudget, field.ignored(['id', 'resets_at']))
const rateLimitChange: Schema<RateLimitChange> = field.record(changeableLimits, field.ignored(['id']))

/** Reads a body that describes a shared budget; without an id it gets the given one. */
export function parseBudget(body: unknown, newId: string): Budget {
  return toBudget(field.parseWith(newBudget, withId(body, newId)))
}

/** Reads a body that describes shared rate limits; without an id they get the given one. */
export function parseRateLimit(body: unknown, newId: string): RateLimit {
  return toRateLimit(field.parseWith(newRateLimit, withId(body, newId)))
}

/** Reads the body of an update, which must change something. */
export function parseBudgetChange(body: unknown): WireForm<BudgetChange> {
  return changing(field.parseWith(budgetChange, body), changeableBudget, 'max_limit')
}

/** Reads the body of an update, which must change something. */
export function parseRateLimitChange(body: unknown): WireForm<RateLimitChange> {
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

/** Returns the budget of a creation or of the configuration. */
export function toBudget(given: WireForm<ConfiguredBudget>): Budget {
  const limit = { max: usd(given.max_limit), every: given.reset_duration ?? '1M' }
  return { id: given.id, name: given.name ?? given.id, limit }
}

/** Returns the rate limits of a creation or of the configuration. */
export function toRateLimit(given: WireForm<ConfiguredRateLimit>): RateLimit {
  return changeRateLimit({ id: given.id, name: given.name ?? given.id }, given)
}

/** Returns the budget with the given fields set. Spent amounts stay spent. */
export function changeBudget(budget: Budget, change: WireForm<BudgetChange>): Budget {
  const { limit } = budget
  const max = change.max_limit === undefined ? limit.max : usd(change.max_limit)
  return { ...budget, name: change.name ?? budget.name, limit: { max, every: change.reset_duration ?? limit.every } }
}

/** Returns the limits with the given fields set. */
export function changeRateLimit(rateLimit: RateLimit, change: WireForm<RateLimitChange>): RateLimit {
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
