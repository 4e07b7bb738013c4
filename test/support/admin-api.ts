import * as z from 'zod'
import type {
  AuditPage,
  BudgetPage,
  BudgetRecord,
  CacheMetrics,
  CreatedKey,
  FailureKind,
  KeyLimits,
  KeyPage,
  KeyRateLimit,
  KeyRecord,
  KeyUsage,
  MetricsSummary,
  RateLimitPage,
  RateLimitRecord,
  WireForm,
} from '../../src/index.ts'
import { sendRequest, type SendOptions, type Reply, type RequestBody } from './send-request.ts'
import type { Stage } from './stage.ts'

export const ADMIN_KEY = 'an-admin-key-of-this-test'

export const KEYS = '/api/governance/virtual-keys'
export const BUDGETS = '/api/governance/budgets'
export const RATE_LIMITS = '/api/governance/rate-limits'
export const AUDIT = '/api/governance/audit'

/** Sends a request with the admin key. */
export function callAdminApi(
  stage: Pick<Stage, 'url' | 'secret'>,
  method: string,
  path: string,
  body?: RequestBody,
  options: SendOptions = {},
): Promise<Reply> {
  const headers = { 'x-admin-key': ADMIN_KEY, ...options.headers }
  return sendRequest(stage, body, { ...options, method, path, secret: null, headers })
}

type Shape<value> = z.ZodType<value>
const whole = z.int().nonnegative()
const timestamp = z.iso.datetime()
const duration = z.enum(['1m', '1h', '1d', '1w', '1M'])

/** Strict schemas of the responses of the admin API: a missing or additional field is an error. */
const listedKey = {
  id: z.string(),
  name: z.string(),
  key_prefix: z.string().length(10),
  is_active: z.boolean(),
  current_usage_cents: whole,
  budget_limit_cents: whole,
}

const key = {
  ...listedKey,
  object: z.literal('virtual_key'),
  description: z.string(),
  created_at: timestamp,
  expires_at: timestamp.nullable(),
  budget_reset_duration: duration.nullable(),
  budget_id: z.string().nullable(),
  plan: z.string().nullable(),
  rate_limit_requests: whole,
  rate_limit_reset_duration: duration.nullable(),
  rate_limit_tokens: whole,
  token_reset_duration: duration.nullable(),
  rate_limit_id: z.string().nullable(),
  provider_configs: z.array(
    z.strictObject({ provider: z.string(), weight: z.number(), allowed_models: z.array(z.string()) }),
  ),
  allowed_models: z.array(z.string()).nullable(),
  max_tokens: whole.nullable(),
  disable_tools: z.boolean(),
  cache_similar: z.nullable(z.boolean()),
  customer: z.nullable(z.string()),
  trusts_context: z.boolean(),
}

export const KEY: Shape<WireForm<KeyRecord>> = z.strictObject(key)

export const CREATED_KEY: Shape<WireForm<CreatedKey>> = z.strictObject({
  ...key,
  value: z.string().regex(/^sk-(bf|svc)-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/),
})

export const KEY_LIST: Shape<WireForm<KeyPage>> = z.strictObject({
  keys: z.array(z.strictObject(listedKey)),
  has_more: z.boolean(),
})

export const BUDGET: Shape<WireForm<BudgetRecord>> = z.strictObject({
  id: z.string(),
  object: z.literal('budget'),
  name: z.string(),
  max_limit: z.number().nonnegative(),
  reset_duration: duration,
  current_usage_cents: whole,
  resets_at: timestamp,
})

export const BUDGET_LIST: Shape<WireForm<BudgetPage>> = z.strictObject({
  budgets: z.array(BUDGET),
  has_more: z.boolean(),
})

export const RATE_LIMIT: Shape<WireForm<RateLimitRecord>> = z.strictObject({
  id: z.string(),
  object: z.literal('rate_limit'),
  name: z.string(),
  request_max_limit: whole,
  request_reset_duration: duration.nullable(),
  token_max_limit: whole,
  token_reset_duration: duration.nullable(),
})

export const RATE_LIMIT_LIST: Shape<WireForm<RateLimitPage>> = z.strictObject({
  rate_limits: z.array(RATE_LIMIT),
  has_more: z.boolean(),
})

const sums = {
  requests: whole,
  tokens: z.strictObject({ prompt: whole, completion: whole, total: whole, saved: z.int() }),
  cost: z.strictObject({
    theoretical_usd: z.number(),
    actual_usd: z.number(),
    billed_usd: z.number(),
    savings_usd: z.number(),
  }),
}

export const USAGE: Shape<WireForm<KeyUsage>> = z.strictObject({
  key_id: z.string(),
  period_start: timestamp,
  current_usage_cents: whole,
  budget_limit_cents: whole,
  budget_resets_at: timestamp,
  ...sums,
  by_model: z.array(z.strictObject({ model: z.string(), ...sums })),
})

export const RATE_STATUS: Shape<WireForm<KeyRateLimit>> = z.strictObject({
  request_limit: whole,
  request_remaining: whole,
  request_reset_at: timestamp,
  token_limit: whole,
  token_remaining: whole,
  token_reset_at: timestamp,
})

export const LIMITS: Shape<WireForm<KeyLimits>> = z.strictObject({
  remaining_requests: whole,
  request_limit: whole,
  request_reset_at: timestamp,
  remaining_tokens: whole,
  token_limit: whole,
  token_reset_at: timestamp,
  remaining_budget_cents: whole,
  budget_limit_cents: whole,
  budget_resets_at: timestamp,
})

export const AUDIT_PAGE: Shape<
  Pick<WireForm<AuditPage>, 'records'> & { readonly has_more: boolean; readonly next: string | null }
> = z.strictObject({
  records: z.array(
    z.strictObject({
      timestamp: timestamp,
      customer: z.nullable(z.string()),
      user: z.nullable(z.string()),
      session: z.nullable(z.string()),
      key_id: z.string().nullable(),
      model: z.string().nullable(),
      tokens_used: whole,
      cost_cents: whole,
      cost_usd: z.number(),
      request_id: z.string(),
      outcome: z.enum(['answered', 'refused', 'failed', 'left']),
      status: z.int(),
      failure: z.custom<FailureKind>((value) => typeof value === 'string').nullable(),
    }),
  ),
  has_more: z.boolean(),
  next: z.string().nullable(),
})

export const METRICS: Shape<WireForm<MetricsSummary>> = z.strictObject({
  optimizer: z.strictObject({
    requests_total: whole,
    requests_per_second: z.number(),
    error_rate: z.number(),
    latency_p50_ms: z.number(),
    latency_p95_ms: z.number(),
    latency_p99_ms: z.number(),
  }),
  optimization: z.strictObject({
    tier_1_cache_hits: whole,
    tier_2_vanishing_context: whole,
    tier_3_rlm: whole,
    tier_4_family_locked: whole,
    tier_5_savings_slider: whole,
    total_savings_usd: z.number(),
  }),
  billing: z.strictObject({
    total_cost_usd: z.number(),
    theoretical_cost_usd: z.number(),
    total_billed_usd: z.number(),
    savings_percentage: z.number(),
  }),
  shadow: z.strictObject({
    dropped_trials: whole,
    tiers: z.array(
      z.strictObject({
        tier: z.literal([2, 3, 4, 5]),
        trials: whole,
        measured_trials: whole,
        facts: whole,
        lost_facts: whole,
        kept_share: z.number().min(0).max(1),
      }),
    ),
  }),
})

export const CACHE_METRICS: Shape<WireForm<CacheMetrics>> = z.strictObject({
  hit_rate: z.number().min(0).max(1),
  total_requests: whole,
  cache_hits: whole,
  cache_misses: whole,
})
