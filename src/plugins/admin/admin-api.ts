import type { DurationCode } from '../../core/store.ts'
import type { KeyFormat, PlanName } from '../../governance/virtual-key.ts'

/** The result of a deletion. */
export interface DeletedRecord {
  readonly id: string
  readonly object: 'virtual_key' | 'budget' | 'rate_limit'
  readonly deleted: true
}

/** A provider that a key may use. */
export interface KeyProvider {
  /** Name of the provider, such as `openai`. */
  readonly provider: string
  /**
   * Relative share of the requests for model ids without a provider, 0 to 1,000,000. 0: only a fallback, unless all
   * providers that serve the model have a share of 0. @default 1
   */
  readonly weight?: number | undefined
  /** Ids of models, exact or with a trailing `*`. Empty: all models. @default all models of the provider */
  readonly allowedModels?: readonly string[] | null | undefined
}

/**
 * The settings of a key. `null` removes a setting, but leaves a window unchanged. An absent field keeps its value or its
 * default.
 */
export interface KeySettings {
  /** At most 2,000 characters. @default '' */
  readonly description?: string | null | undefined
  /** Maximum amount billed to the key per window, in whole cents. @default no limit */
  readonly budgetLimitCents?: number | null | undefined
  /** The budget's window, aligned to the calendar in UTC. @default '1M' */
  readonly budgetResetDuration?: DurationCode | null | undefined
  /** Maximum number of requests per window. @default the limit of the plan, if any */
  readonly rateLimitRequests?: number | null | undefined
  /** The window of `rateLimitRequests`, aligned to the calendar in UTC. @default '1h' */
  readonly rateLimitResetDuration?: DurationCode | null | undefined
  /** Maximum number of tokens per window. @default the limit of the plan, if any */
  readonly rateLimitTokens?: number | null | undefined
  /** The window of `rateLimitTokens`, aligned to the calendar in UTC. @default '1h' */
  readonly tokenResetDuration?: DurationCode | null | undefined
  /** Limits the key to these providers. Empty: all providers. @default all providers */
  readonly providerConfigs?: readonly KeyProvider[] | null | undefined
  /** `<provider>/<model_id>` or aliases, exact or with a trailing `*`. Empty: no models. @default all models */
  readonly allowedModels?: readonly string[] | null | undefined
  /** Maximum `max_tokens` of a request. @default no maximum */
  readonly maxTokens?: number | null | undefined
  /** Rejects requests that contain tools. @default false */
  readonly disableTools?: boolean | null | undefined
  /** Overrides `cache.similar` for requests with the key. @default the setting of the alias, else of the cache */
  readonly cacheSimilar?: boolean | null | undefined
  /** A named set of request and token limits. Limits that are set on the key replace those of its plan. @default none */
  readonly plan?: PlanName | null | undefined
  /** The customer for which every request of the key is made. @default none */
  readonly customer?: string | null | undefined
  /** True if headers may name the customer, user, session and tags of a request. Callers can then choose who pays. @default false */
  readonly trustsContext?: boolean | null | undefined
  /** When the key expires, ISO 8601 with a time zone. @default never */
  readonly expiresAt?: string | null | undefined
  /** Id of a shared budget that applies in addition to the key's budget. @default none */
  readonly budgetId?: string | null | undefined
  /** Id of shared rate limits that apply in addition to the key's limits. @default none */
  readonly rateLimitId?: string | null | undefined
  /** If false, requests with this key are rejected with 401. @default true */
  readonly isActive?: boolean | undefined
}

/** Fields of a new key. */
export interface NewKey extends KeySettings {
  /** 1 to 200 characters. */
  readonly name: string
  /** Prefix of the generated secret. @default 'sk-bf' */
  readonly keyFormat?: KeyFormat | undefined
  /** A secret to use instead of a generated one, 16 to 512 characters. @default generated */
  readonly value?: string | undefined
}

/** Changes to a key. */
export interface KeyChange extends KeySettings {
  readonly name?: string | undefined
}

/** A key in a list. */
export interface ListedKey {
  readonly id: string
  readonly name: string
  /** The first 10 characters of the secret. Empty for a key that was configured with `valueSha256`. */
  readonly keyPrefix: string
  readonly isActive: boolean
  /** Amount billed in the window of the budget, or in this month if the key has no budget. In cents, rounded half up. */
  readonly currentUsageCents: number
  /** 9007199254740991 (`Number.MAX_SAFE_INTEGER`) if there is no limit. */
  readonly budgetLimitCents: number
}

/** A key, without its secret. An absent limit is 9007199254740991, and its duration is null. */
export interface KeyRecord extends ListedKey {
  readonly object: 'virtual_key'
  readonly description: string
  /** ISO 8601. */
  readonly createdAt: string
  /** ISO 8601. null: the key does not expire. */
  readonly expiresAt: string | null
  readonly budgetResetDuration: DurationCode | null
  readonly budgetId: string | null
  readonly plan: string | null
  readonly customer: string | null
  readonly trustsContext: boolean
  readonly rateLimitRequests: number
  readonly rateLimitResetDuration: DurationCode | null
  readonly rateLimitTokens: number
  readonly tokenResetDuration: DurationCode | null
  readonly rateLimitId: string | null
  readonly providerConfigs: readonly KeyProviderRecord[]
  /** null: all models. */
  readonly allowedModels: readonly string[] | null
  /** null: no maximum. */
  readonly maxTokens: number | null
  readonly disableTools: boolean
  /** Null if the key does not override the setting of the cache. */
  readonly cacheSimilar: boolean | null
}

/** A provider in the record of a key. */
export interface KeyProviderRecord {
  readonly provider: string
  readonly weight: number
  /** Empty if all models are allowed. */
  readonly allowedModels: readonly string[]
}

/** A new key with its secret. */
export interface CreatedKey extends KeyRecord {
  /** The secret. Returned only on creation, because the store contains only its hash and its prefix. */
  readonly value: string
}

/** A page of keys. */
export interface KeyPage {
  readonly keys: readonly ListedKey[]
  readonly hasMore: boolean
}

/**
 * Changes to a shared budget. The amount spent in the current window is retained, except if the window becomes one
 * minute. Absent fields keep their values; the defaults apply to a new budget.
 */
export interface BudgetChange {
  /** @default the id */
  readonly name?: string | undefined
  /** Maximum amount billed to all keys of the budget together per window, in dollars. */
  readonly maxLimitUsd?: number | undefined
  /** The window, aligned to the calendar in UTC. @default '1M' */
  readonly resetDuration?: DurationCode | undefined
}

/** Fields of a new shared budget. */
export interface NewBudget extends BudgetChange {
  /** 1 to 128 letters, digits, dots, hyphens and underscores. @default a new UUID */
  readonly id?: string | undefined
  readonly maxLimitUsd: number
}

/** A shared budget. */
export interface BudgetRecord {
  readonly id: string
  readonly object: 'budget'
  readonly name: string
  readonly maxLimitUsd: number
  readonly resetDuration: DurationCode
  /** Amount billed to all keys of the budget in the current window, in cents, rounded half up. */
  readonly currentUsageCents: number
  /** ISO 8601. */
  readonly resetsAt: string
}

/** A page of shared budgets. */
export interface BudgetPage {
  readonly budgets: readonly BudgetRecord[]
  readonly hasMore: boolean
}

/**
 * Changes to shared rate limits. A limit of `null` is removed. Absent fields keep their values; the defaults apply to
 * new rate limits.
 */
export interface RateLimitChange {
  /** @default the id */
  readonly name?: string | undefined
  /** Maximum number of requests of all keys together per window. @default no limit */
  readonly requestMaxLimit?: number | null | undefined
  /** The window of `requestMaxLimit`, aligned to the calendar in UTC. @default '1h' */
  readonly requestResetDuration?: DurationCode | null | undefined
  /** Maximum number of tokens of all keys together per window. @default no limit */
  readonly tokenMaxLimit?: number | null | undefined
  /** The window of `tokenMaxLimit`, aligned to the calendar in UTC. @default '1h' */
  readonly tokenResetDuration?: DurationCode | null | undefined
}

/** Fields of new shared rate limits. */
export interface NewRateLimit extends RateLimitChange {
  /** 1 to 128 letters, digits, dots, hyphens and underscores. @default a new UUID */
  readonly id?: string | undefined
}

/** Shared rate limits. An absent limit is 9007199254740991, and its duration is null. */
export interface RateLimitRecord {
  readonly id: string
  readonly object: 'rate_limit'
  readonly name: string
  readonly requestMaxLimit: number
  readonly requestResetDuration: DurationCode | null
  readonly tokenMaxLimit: number
  readonly tokenResetDuration: DurationCode | null
}

/** A page of shared rate limits. */
export interface RateLimitPage {
  readonly rateLimits: readonly RateLimitRecord[]
  readonly hasMore: boolean
}

/**
 * Keys, budgets and rate limits that are created or updated at startup, at most 100,000 of each. Each field may have its
 * name in the HTTP API instead (`WireForm`), as in a JSON file with records of the admin API.
 */
export interface KeyConfiguration {
  readonly virtualKeys?: readonly ConfiguredKey[] | undefined
  readonly budgets?: readonly ConfiguredBudget[] | undefined
  readonly rateLimits?: readonly ConfiguredRateLimit[] | undefined
}

/** A key in the configuration. Set either `value` or `valueSha256`. */
export interface ConfiguredKey extends NewKey {
  /** Id of the key. Stable across restarts. @default derived from the secret's hash */
  readonly id?: string | undefined
  /** SHA-256 of the secret as 64 hex digits. Keeps the secret out of the configuration. */
  readonly valueSha256?: string | undefined
}

/** A shared budget in the configuration. */
export interface ConfiguredBudget extends NewBudget {
  readonly id: string
}

/** Shared rate limits in the configuration. */
export interface ConfiguredRateLimit extends NewRateLimit {
  readonly id: string
}
