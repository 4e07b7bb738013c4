import type { NanoUsd } from '../core/money.ts'
import type { DurationCode } from '../core/period.ts'

/** Routes a model without provider prefix: providers by weight, each with the models it may serve for the key. */
export interface ProviderConfig {
  readonly provider: string
  readonly weight: number
  /** Model ids, exact or with a trailing `*`; empty: all. */
  readonly allowedModels: readonly string[]
}

/** At most so much in each calendar window. */
export interface Allowance<amount extends number = number> {
  readonly max: amount
  readonly every: DurationCode
}

/** What a key may do beyond its limits. */
export interface Permissions {
  /** `<provider>/<model_id>` or aliases, exact or with a trailing `*`. Absent: all. */
  readonly allowedModels?: readonly string[]
  /** The greatest max_tokens that a request may ask for. */
  readonly maxTokens?: number
  readonly disableTools?: boolean
}

/** A caller's key as it is stored: the secret itself is not stored. */
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
  /** The first moment at which the key is no longer valid, milliseconds since 1970. */
  readonly expiresAt?: number
  readonly budget?: Allowance<NanoUsd>
  readonly requests?: Allowance
  readonly tokens?: Allowance
  /** Shared records, besides the key's own. */
  readonly budgetId?: string
  readonly rateLimitId?: string
  readonly plan?: string
  readonly providers: readonly ProviderConfig[]
  readonly permissions: Permissions
}

/** A budget that several keys may share. */
export interface Budget {
  readonly id: string
  readonly name: string
  readonly limit: Allowance<NanoUsd>
}

/** Limits of requests and tokens that several keys may share. */
export interface RateLimit {
  readonly id: string
  readonly name: string
  readonly requests?: Allowance
  readonly tokens?: Allowance
}
