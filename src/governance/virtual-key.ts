import * as z from 'zod/mini'
import type { NanoUsd } from '../core/money.ts'
import { DURATION_CODES, type DurationCode } from '../core/store.ts'

/** The integer that represents "no limit" in requests and responses. */
export const UNLIMITED: number = Number.MAX_SAFE_INTEGER

/** A stored virtual key. Contains the hash of its secret, not the secret. */
export interface VirtualKey {
  readonly id: string
  readonly name: string
  readonly description: string
  /** SHA-256 of the secret, 64 hex digits. */
  readonly hash: string
  /** The first 10 characters of the secret, for lists. */
  readonly prefix: string
  readonly createdAt: number
  readonly active: boolean
  /** Time from which the key is invalid, in milliseconds since 1970. */
  readonly expiresAt?: number
  readonly budget?: Allowance<NanoUsd>
  readonly requests?: Allowance
  readonly tokens?: Allowance
  /** Ids of shared records that apply in addition to the key's limits. */
  readonly budgetId?: string
  readonly rateLimitId?: string
  readonly plan?: string
  readonly providers: readonly ProviderConfig[]
  readonly permissions: Permissions
}

/** Maximum amount per calendar window. */
export interface Allowance<amount extends number = number> {
  readonly max: amount
  readonly every: DurationCode
}

/** A provider for models without a provider prefix, chosen by weight, with the models that the key may use there. */
export interface ProviderConfig {
  readonly provider: string
  readonly weight: number
  /** Model ids, exact or with a trailing `*`; empty: all. */
  readonly allowedModels: readonly string[]
}

/** Restrictions of a key besides its limits. */
export interface Permissions {
  /** `<provider>/<model_id>` or aliases, exact or with a trailing `*`. Absent: all. */
  readonly allowedModels?: readonly string[]
  /** Maximum `max_tokens` of a request. */
  readonly maxTokens?: number
  readonly disableTools?: boolean
}

/** A budget that several keys may share. */
export interface Budget {
  readonly id: string
  readonly name: string
  readonly limit: Allowance<NanoUsd>
}

/** Limits of requests and tokens that several keys may share. */
export interface RateLimit extends LimitPlan {
  readonly id: string
  readonly name: string
}

/** Request and token limits. An absent limit is no limit. */
export interface LimitPlan {
  readonly requests?: Allowance
  readonly tokens?: Allowance
}

/** Names of predefined limits. Plans for chat use windows of an hour, plans for messages windows of a minute. */
export type PlanName =
  | 'free'
  | 'pro'
  | 'enterprise'
  | 'messages-free'
  | 'messages-basic'
  | 'messages-pro'
  | 'messages-enterprise'

const PLANS: Readonly<Record<PlanName, LimitPlan>> = {
  free: plan(100, 100_000, '1h'),
  pro: plan(1_000, 1_000_000, '1h'),
  enterprise: {},
  'messages-free': plan(60, 40_000, '1m'),
  'messages-basic': plan(300, 200_000, '1m'),
  'messages-pro': plan(1_000, 1_000_000, '1m'),
  'messages-enterprise': {},
}

export const PLAN_NAMES: readonly PlanName[] = Object.keys(PLANS) as PlanName[]

function plan(requests: number, tokens: number, every: DurationCode): LimitPlan {
  return { requests: { max: requests, every }, tokens: { max: tokens, every } }
}

/** Returns the key's own limits. A limit that is set on the key overrides that of its plan. */
export function limitsOf(key: VirtualKey): LimitPlan {
  const preset = PLAN_NAMES.includes(key.plan as PlanName) ? PLANS[key.plan as PlanName] : {}
  const requests = key.requests ?? preset.requests
  const tokens = key.tokens ?? preset.tokens
  return { ...(requests !== undefined && { requests }), ...(tokens !== undefined && { tokens }) }
}

/*
 * Schemas of stored records. An invalid record is refused as a whole, because a key must not lose a limit that cannot
 * be parsed.
 */
const amount = z.int().check(z.nonnegative())
const every = z.enum(DURATION_CODES)
const allowance = z.object({ max: amount, every })
const money = z.object({ max: z.custom<NanoUsd>((value) => Number.isSafeInteger(value) && Number(value) >= 0), every })

export const storedKey: z.ZodMiniType<VirtualKey> = z.object({
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

export const storedBudget: z.ZodMiniType<Budget> = z.object({ id: z.string(), name: z.string(), limit: money })

export const storedRateLimit: z.ZodMiniType<RateLimit> = z.object({
  id: z.string(),
  name: z.string(),
  requests: z.exactOptional(allowance),
  tokens: z.exactOptional(allowance),
})
