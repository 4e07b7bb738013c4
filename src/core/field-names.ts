import { GatewayError } from './errors.ts'
import { isJsonObject } from './json.ts'

export const WIRE_NAMES = {
  actualUsd: 'actual_usd',
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
  lostFacts: 'lost_facts',
  maxLimitUsd: 'max_limit',
  maxTokens: 'max_tokens',
  measuredTrials: 'measured_trials',
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

/** A record with the field names of the HTTP API and the configuration, such as `budget_limit_cents`. */
export type WireForm<T> = T extends readonly (infer Item)[]
  ? readonly WireForm<Item>[]
  : T extends object
    ? { readonly [Name in keyof T as WireName<Name>]: WireForm<T[Name]> }
    : T

const wireNameByName: ReadonlyMap<string, string> = new Map(Object.entries(WIRE_NAMES))
const nameByWireName: ReadonlyMap<string, string> = new Map(
  Object.entries(WIRE_NAMES).map(([name, wireName]) => [wireName, name]),
)

/** Maximum depth at which fields are renamed, because values may be cyclic. */
const MAX_DEPTH = 5

/** Returns the value with wire names. Throws `invalid-admin-request` for a field that is present in both spellings. */
export function toWire(value: unknown): unknown {
  return renameFields(value, wireNameByName)
}

export function fromWire(value: unknown): unknown {
  return renameFields(value, nameByWireName)
}

function renameFields(value: unknown, names: ReadonlyMap<string, string>, depth: number = 0): unknown {
  if (depth === MAX_DEPTH) return value
  if (Array.isArray(value)) return value.map((item) => renameFields(item, names, depth + 1))
  if (!isJsonObject(value) || value instanceof Date) return value
  const fields = Object.entries(value).map(([name, field]) => {
    const newName = names.get(name)
    if (newName !== undefined && Object.hasOwn(value, newName)) throw duplicateFieldError(name, newName)
    return [newName ?? name, renameFields(field, names, depth + 1)] as const
  })
  return Object.fromEntries(fields)
}

function duplicateFieldError(name: string, other: string): GatewayError {
  return new GatewayError('invalid-admin-request', `${name}: ${other} is the same field. Set only one of them.`, {
    param: name,
  })
}

/** Error messages contain the TypeScript names, unless the parameters contain a wire name. */
export async function callInProcess(
  parameters: readonly unknown[],
  call: (parameters: readonly unknown[]) => Promise<unknown>,
): Promise<unknown> {
  try {
    return fromWire(await call(parameters.map(toWire)))
  } catch (error) {
    throw GatewayError.is(error) && !hasWireNames(parameters) ? withTypeScriptNames(error) : error
  }
}

function hasWireNames(value: unknown, depth: number = 0): boolean {
  if (depth === MAX_DEPTH || typeof value !== 'object' || value === null) return false
  return Object.entries(value).some(([name, field]) => nameByWireName.has(name) || hasWireNames(field, depth + 1))
}

function withTypeScriptNames({ kind, message, details }: GatewayError): GatewayError {
  const rename = (text: string): string => text.replace(/\w+_\w+/g, (name) => nameByWireName.get(name) ?? name)
  const { param, ...others } = details
  return new GatewayError(kind, rename(message), { ...others, ...(param !== undefined && { param: rename(param) }) })
}
