import { isJsonObject } from './json.ts'

/** For types. At run time, `toWireName` returns the same names. */
export const WIRE_NAMES = {
  actualUsd: 'actual_usd',
  addUsd: 'add_usd',
  allowedModels: 'allowed_models',
  billedUsd: 'billed_usd',
  budgetId: 'budget_id',
  budgetLimitCents: 'budget_limit_cents',
  budgetResetDuration: 'budget_reset_duration',
  budgetResetsAt: 'budget_resets_at',
  byModel: 'by_model',
  cacheHits: 'cache_hits',
  cacheMisses: 'cache_misses',
  costCents: 'cost_cents',
  costUsd: 'cost_usd',
  createdAt: 'created_at',
  currentUsageCents: 'current_usage_cents',
  disableTools: 'disable_tools',
  droppedTrials: 'dropped_trials',
  cacheSimilar: 'cache_similar',
  errorRate: 'error_rate',
  expiresAt: 'expires_at',
  hasMore: 'has_more',
  hitRate: 'hit_rate',
  isActive: 'is_active',
  keptShare: 'kept_share',
  keyFormat: 'key_format',
  keyId: 'key_id',
  keyPrefix: 'key_prefix',
  latencyP50Ms: 'latency_p50_ms',
  latencyP95Ms: 'latency_p95_ms',
  latencyP99Ms: 'latency_p99_ms',
  limitUsd: 'limit_usd',
  lostFacts: 'lost_facts',
  maxLimitUsd: 'max_limit',
  maxTokens: 'max_tokens',
  measuredTrials: 'measured_trials',
  parentId: 'parent_id',
  periodStart: 'period_start',
  providerConfigs: 'provider_configs',
  rateLimitId: 'rate_limit_id',
  rateLimitRequests: 'rate_limit_requests',
  rateLimitResetDuration: 'rate_limit_reset_duration',
  rateLimitTokens: 'rate_limit_tokens',
  rateLimits: 'rate_limits',
  remainingBudgetCents: 'remaining_budget_cents',
  remainingRequests: 'remaining_requests',
  remainingTokens: 'remaining_tokens',
  requestId: 'request_id',
  requestLimit: 'request_limit',
  requestMaxLimit: 'request_max_limit',
  requestRemaining: 'request_remaining',
  requestResetAt: 'request_reset_at',
  requestResetDuration: 'request_reset_duration',
  requestsPerSecond: 'requests_per_second',
  requestsTotal: 'requests_total',
  resetDuration: 'reset_duration',
  resetsAt: 'resets_at',
  savingsRatio: 'savings_percentage',
  savingsUsd: 'savings_usd',
  trustsContext: 'trusts_context',
  theoreticalCostUsd: 'theoretical_cost_usd',
  theoreticalUsd: 'theoretical_usd',
  tier1CacheHits: 'tier_1_cache_hits',
  tier2VanishingContext: 'tier_2_vanishing_context',
  tier3Rlm: 'tier_3_rlm',
  tier4FamilyLocked: 'tier_4_family_locked',
  tier5SavingsSlider: 'tier_5_savings_slider',
  tokenLimit: 'token_limit',
  tokenMaxLimit: 'token_max_limit',
  tokenRemaining: 'token_remaining',
  tokenResetAt: 'token_reset_at',
  tokenResetDuration: 'token_reset_duration',
  tokensUsed: 'tokens_used',
  totalBilledUsd: 'total_billed_usd',
  totalCostUsd: 'total_cost_usd',
  totalRequests: 'total_requests',
  totalSavingsUsd: 'total_savings_usd',
  valueSha256: 'value_sha256',
  virtualKeys: 'virtual_keys',
} as const

/** The name of a field in the HTTP API. */
export type WireName<Name> = Name extends keyof typeof WIRE_NAMES ? (typeof WIRE_NAMES)[Name] : Name

/** A record with the field names of the HTTP API, such as `budget_limit_cents`. */
export type WireForm<T> = T extends readonly (infer Item)[]
  ? readonly WireForm<Item>[]
  : T extends object
    ? { readonly [Name in keyof T as WireName<Name>]: WireForm<T[Name]> }
    : T

const SPECIAL_NAMES: Readonly<Record<string, string>> = {
  maxLimitUsd: 'max_limit',
  savingsRatio: 'savings_percentage',
  tier1CacheHits: 'tier_1_cache_hits',
  tier2VanishingContext: 'tier_2_vanishing_context',
  tier3Rlm: 'tier_3_rlm',
  tier4FamilyLocked: 'tier_4_family_locked',
  tier5SavingsSlider: 'tier_5_savings_slider',
}

export function toWireName(name: string): string {
  return SPECIAL_NAMES[name] ?? name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`)
}

function fromWireName(wireName: string): string {
  const [special] = Object.entries(SPECIAL_NAMES).find(([, name]) => name === wireName) ?? []
  return special ?? wireName.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())
}

/** Returns the value with the names of the HTTP API. */
export function toWire(value: unknown): unknown {
  return renameFields(value, toWireName)
}

/** Returns the value in camel case. */
export function fromWire(value: unknown): unknown {
  return renameFields(value, fromWireName)
}

/** Maximum depth at which fields are renamed, because values may be cyclic. */
const MAX_DEPTH = 5

function renameFields(value: unknown, rename: (name: string) => string, depth: number = 0): unknown {
  if (depth === MAX_DEPTH) return value
  if (Array.isArray(value)) return value.map((item) => renameFields(item, rename, depth + 1))
  if (!isJsonObject(value)) return value
  const renamed: Record<string, unknown> = {}
  for (const [name, field] of Object.entries(value)) {
    const newName = rename(name)
    // A field that is set to undefined must not remove the same field under its other name.
    if (field === undefined && newName in renamed) continue
    // The names in metadata belong to the user.
    renamed[newName] = name === 'metadata' ? field : renameFields(field, rename, depth + 1)
  }
  return renamed
}
