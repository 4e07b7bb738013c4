import * as z from 'zod/mini'
import type { NanoUsd } from '../core/money.ts'
import { DURATION_CODES } from '../core/period.ts'
import { PLAN_NAMES } from './plans.ts'
import type { Budget, RateLimit, VirtualKey } from './virtual-key.ts'

/**
 * Records as the library stores them. An invalid record is refused as a whole, because a limit that cannot be parsed
 * must never become no limit.
 */
const amount = z.int().check(z.nonnegative())
const every = z.enum(DURATION_CODES)
const allowance = z.object({ max: amount, every })
const money = z.object({ max: z.custom<NanoUsd>((value) => Number.isSafeInteger(value) && Number(value) >= 0), every })

const key: z.ZodMiniType<VirtualKey> = z.object({
  id: z.string(),
  name: z.string(),
  description: z.string(),
  hash: z.string().check(z.regex(/^[0-9a-f]{64}$/)),
  prefix: z.string(),
  createdAt: z.number(),
  active: z.boolean(),
  expiresAt: z.exactOptional(z.number()),
  budget: z.exactOptional(money),
  requests: z.exactOptional(allowance),
  tokens: z.exactOptional(allowance),
  budgetId: z.exactOptional(z.string()),
  rateLimitId: z.exactOptional(z.string()),
  plan: z.exactOptional(z.enum(PLAN_NAMES)),
  providers: z.array(z.object({ provider: z.string(), weight: z.number(), allowedModels: z.array(z.string()) })),
  permissions: z.object({
    allowedModels: z.exactOptional(z.array(z.string())),
    maxTokens: z.exactOptional(amount),
    disableTools: z.exactOptional(z.boolean()),
  }),
})

const budget: z.ZodMiniType<Budget> = z.object({ id: z.string(), name: z.string(), limit: money })

const rateLimit: z.ZodMiniType<RateLimit> = z.object({
  id: z.string(),
  name: z.string(),
  requests: z.exactOptional(allowance),
  tokens: z.exactOptional(allowance),
})

export function parseKeyRecord(value: unknown): VirtualKey | undefined {
  return key.safeParse(value).data
}

export function parseBudgetRecord(value: unknown): Budget | undefined {
  return budget.safeParse(value).data
}

export function parseRateLimitRecord(value: unknown): RateLimit | undefined {
  return rateLimit.safeParse(value).data
}
