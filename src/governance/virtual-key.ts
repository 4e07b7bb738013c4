import { sha256 } from '#hash'
import type { NanoUsd } from '../core/money.ts'
import type { Model } from '../core/ports.ts'
import { matchesModel, splitModelName } from '../core/prompt.ts'
import type { DurationCode } from '../core/store.ts'

/** Represents "no limit" in requests and responses. */
export const UNLIMITED: number = Number.MAX_SAFE_INTEGER

export interface VirtualKey {
  readonly id: string
  readonly name: string
  readonly description: string
  /** SHA-256 of the secret as 64 hex digits. */
  readonly hash: string
  /** The first 10 characters of the secret. Empty if only the hash was configured. */
  readonly prefix: string
  readonly createdAt: number
  readonly active: boolean
  /** Milliseconds since 1970. */
  readonly expiresAt?: number
  readonly budget?: Allowance<NanoUsd>
  readonly requests?: Allowance
  readonly tokens?: Allowance
  readonly budgetId?: string
  readonly rateLimitId?: string
  readonly plan?: string
  /** The customer for which every request of the key is made. */
  readonly customer?: string
  /** True if headers of the caller may name the customer, user, session and tags. @default false */
  readonly trustsContext?: boolean
  readonly providers: readonly ProviderConfig[]
  readonly permissions: Permissions
}

export interface Allowance<Amount extends number = number> {
  readonly max: Amount
  readonly every: DurationCode
}

/** Requests for a model without a provider prefix are divided among the providers by weight. Aliases are not. */
export interface ProviderConfig {
  readonly provider: string
  readonly weight: number
  /** Model ids, with or without the provider prefix, exact or with a trailing `*`. Empty: all models. */
  readonly allowedModels: readonly string[]
}

export interface Permissions {
  /** `<provider>/<model_id>`, or names as in requests, exact or with a trailing `*`. @default all models */
  readonly allowedModels?: readonly string[]
  /** Further lists, of a customer and its parents, each of which must contain the model. @default none */
  readonly customerModels?: readonly (readonly string[])[]
  readonly maxTokens?: number
  readonly disableTools?: boolean
  /** Overrides `cache.similar`. */
  readonly cacheSimilar?: boolean
}

export interface Budget {
  readonly id: string
  readonly name: string
  readonly limit: Allowance<NanoUsd>
}

export interface RateLimit extends RateAllowances {
  readonly id: string
  readonly name: string
}

interface RateAllowances {
  readonly requests?: Allowance
  readonly tokens?: Allowance
}

/** A set of default limits for a key. */
export type PlanName =
  | 'free'
  | 'pro'
  | 'enterprise'
  | 'messages-free'
  | 'messages-basic'
  | 'messages-pro'
  | 'messages-enterprise'

const PLANS: Readonly<Record<PlanName, RateAllowances>> = {
  free: createPlan(100, 100_000, '1h'),
  pro: createPlan(1_000, 1_000_000, '1h'),
  enterprise: {},
  'messages-free': createPlan(60, 40_000, '1m'),
  'messages-basic': createPlan(300, 200_000, '1m'),
  'messages-pro': createPlan(1_000, 1_000_000, '1m'),
  'messages-enterprise': {},
}

export const PLAN_NAMES: readonly PlanName[] = Object.keys(PLANS) as PlanName[]

function createPlan(requests: number, tokens: number, every: DurationCode): RateAllowances {
  return { requests: { max: requests, every }, tokens: { max: tokens, every } }
}

export function effectiveRateLimits(key: VirtualKey): RateAllowances {
  const planLimits = PLAN_NAMES.includes(key.plan as PlanName) ? PLANS[key.plan as PlanName] : {}
  const requests = key.requests ?? planLimits.requests
  const tokens = key.tokens ?? planLimits.tokens
  return { ...(requests !== undefined && { requests }), ...(tokens !== undefined && { tokens }) }
}

/** The beginning of a new secret. Clients may check it. */
export type KeyFormat = 'sk-bf' | 'sk-svc'

const MAX_SECRET_LENGTH = 512
const PREFIX_LENGTH = 10

export function createSecret(format: KeyFormat, uuid: () => string): string {
  return `${format}-${uuid()}`
}

export function hashSecret(secret: string): string | undefined {
  return secret.length === 0 || secret.length > MAX_SECRET_LENGTH ? undefined : sha256(secret)
}

export function prefixOfSecret(secret: string): string {
  return secret.slice(0, PREFIX_LENGTH)
}

export function isSameSecret(actual: string, expected: string): boolean {
  return isSameHash(hashSecret(actual) ?? '', hashSecret(expected) ?? '-')
}

/** Takes time that depends only on the lengths. */
export function isSameHash(actual: string, expected: string): boolean {
  if (actual.length !== expected.length) return false
  let difference = 0
  for (let index = 0; index < actual.length; index += 1) {
    difference |= actual.charCodeAt(index) ^ expected.charCodeAt(index)
  }
  return difference === 0
}

/** True if `checkAccess` can reject a request of the key. */
export function isRestricted({ providers, permissions }: VirtualKey): boolean {
  const { allowedModels, customerModels, maxTokens, disableTools } = permissions
  const restrictsModels = allowedModels !== undefined || customerModels !== undefined || providers.length > 0
  return restrictsModels || maxTokens !== undefined || disableTools === true
}

/** A key with providers may use only the routes that they serve. Otherwise, an alias could reach another provider. */
export function mayUse(key: VirtualKey, name: string, routeNames: readonly string[] = [name]): boolean {
  const { allowedModels, customerModels = [] } = key.permissions
  if (allowedModels === undefined && key.providers.length === 0) return true
  const isAllowed = (candidate: string): boolean =>
    (allowedModels === undefined || matchesModel(allowedModels, candidate)) &&
    customerModels.every((models) => matchesModel(models, candidate))
  return routeNames.some((route) => (isAllowed(name) || isAllowed(route)) && isServed(key, route))
}

function isServed({ providers }: VirtualKey, route: string): boolean {
  if (providers.length === 0) return true
  const nameParts = splitModelName(route)
  return (
    nameParts !== undefined &&
    providers.some((config) => config.provider === nameParts.provider && servesModel(config, nameParts.id))
  )
}

export function servesModel(config: ProviderConfig, id: string): boolean {
  const { allowedModels, provider } = config
  return (
    allowedModels.length === 0 || matchesModel(allowedModels, id) || matchesModel(allowedModels, `${provider}/${id}`)
  )
}

export function outputLimit(key: VirtualKey, requested: number | undefined, model: Model): number {
  return requested ?? Math.min(key.permissions.maxTokens ?? Infinity, model.maxOutputTokens)
}

export function orderProviders(
  configs: readonly ProviderConfig[],
  modelId: string,
  random: () => number,
): readonly ProviderConfig[] {
  const servingConfigs = configs
    .filter((config) => servesModel(config, modelId))
    .toSorted((a, b) => b.weight - a.weight)
  const first = drawByWeight(servingConfigs, random)
  return first === undefined ? [] : [first, ...servingConfigs.filter((config) => config !== first)]
}

function drawByWeight(configs: readonly ProviderConfig[], random: () => number): ProviderConfig | undefined {
  let remainingWeight = random() * configs.reduce((sum, config) => sum + config.weight, 0)
  for (const config of configs) {
    if (remainingWeight < config.weight) return config
    remainingWeight -= config.weight
  }
  return configs[0]
}
