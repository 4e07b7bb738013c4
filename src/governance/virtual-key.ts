import * as z from 'zod/mini'
import type { NanoUsd } from '../core/money.ts'
import { DURATION_CODES, type DurationCode } from '../core/store.ts'
import { sha256 } from '#hash'
import { chain, type MaybePromise } from '../core/async.ts'
import {
  CACHE_MS,
  createRecent,
  createRecordTable,
  type LookupOptions,
  MAX_CACHED,
  fallBackToLast,
  type RecordTable,
} from './record-table.ts'

/** The integer that represents "no limit" in requests and responses. */
export const UNLIMITED: number = Number.MAX_SAFE_INTEGER

/** A stored virtual key. Contains the hash of its secret, not the secret. */
export interface VirtualKey {
  readonly id: string
  readonly name: string
  readonly description: string
  /** SHA-256 of the secret as 64 hex digits. */
  readonly hash: string
  /** The first 10 characters of the secret. */
  readonly prefix: string
  readonly createdAt: number
  readonly active: boolean
  /** Time from which the key is invalid, in milliseconds since 1970. */
  readonly expiresAt?: number
  readonly budget?: Allowance<NanoUsd>
  readonly requests?: Allowance
  readonly tokens?: Allowance
  /** Id of a shared budget, which applies in addition to the key's own limits. */
  readonly budgetId?: string
  readonly rateLimitId?: string
  readonly plan?: string
  readonly providers: readonly ProviderConfig[]
  readonly permissions: Permissions
}

/** Maximum amount per calendar window. */
export interface Allowance<Amount extends number = number> {
  readonly max: Amount
  readonly every: DurationCode
}

/**
 * A provider that the key may use. Requests whose model names have no provider prefix are divided among the providers
 * by weight.
 */
export interface ProviderConfig {
  readonly provider: string
  readonly weight: number
  /** Model ids, exact or with a trailing `*`. Empty: all models. */
  readonly allowedModels: readonly string[]
}

/** Restrictions on a key besides its limits. */
export interface Permissions {
  /** `<provider>/<model_id>` or aliases, exact or with a trailing `*`. @default all models */
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

/** Request and token limits. If a field is absent, there is no such limit. */
export interface LimitPlan {
  readonly requests?: Allowance
  readonly tokens?: Allowance
}

/** Names of predefined limits. */
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

/** Returns the key's own limits. They override those of its plan. */
export function limitsOf(key: VirtualKey): LimitPlan {
  const preset = PLAN_NAMES.includes(key.plan as PlanName) ? PLANS[key.plan as PlanName] : {}
  const requests = key.requests ?? preset.requests
  const tokens = key.tokens ?? preset.tokens
  return { ...(requests !== undefined && { requests }), ...(tokens !== undefined && { tokens }) }
}

// A record with an invalid field is rejected. Otherwise, a limit that cannot be parsed would no longer apply to its key.
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

/** Finds virtual keys by their secrets. The store contains the hash of a secret, not the secret. */
export interface KeyLookup {
  /**
   * Returns the key with this secret, or undefined if the secret is unknown. The returned key may be inactive or
   * expired. Changes by this process are visible immediately, changes by other processes within `cacheMs`. Rejects with
   * `overloaded` for a record that cannot be parsed.
   */
  find(secret: string): MaybePromise<VirtualKey | undefined>
  readonly keys: RecordTable<VirtualKey>
  /** Removes a hash from the cache. Must be called after a change of its key. */
  forget(hash: string): void
}

/** Prefix of the entries that map the hash of a secret to the id of its key. */
export const HASHES = 'key-hash:'

export function createKeyLookup(options: LookupOptions): KeyLookup {
  const { store, now, cacheMs = CACHE_MS, keepsStale = false } = options
  const keys = createRecordTable({ ...options, prefix: 'key:', label: 'virtual key', schema: storedKey })
  /**
   * Two caches, keyed by hash. They are separate because a flood of unknown secrets would otherwise evict valid keys.
   */
  const known = createRecent<string>(MAX_CACHED)
  const unknown = createRecent<undefined>(MAX_CACHED)

  function find(secret: string): MaybePromise<VirtualKey | undefined> {
    const hash = hashSecret(secret)
    if (hash === undefined) return undefined
    return chain(idOf(hash), (id) =>
      id === undefined
        ? undefined
        : chain(keys.find(id), (key) => (key !== undefined && isSameHash(key.hash, hash) ? key : undefined)),
    )
  }

  /** The number of changes so far. A lookup that began before a change must not cache its hash as unknown. */
  let changes = 0

  function idOf(hash: string): MaybePromise<string | undefined> {
    const at = now()
    const cached = known.get(hash, at)
    if (cached !== undefined) return cached.value
    if (unknown.get(hash, at) !== undefined) return undefined
    const changesBefore = changes
    const remember = (id: string | undefined): string | undefined => {
      if (id !== undefined) known.put(hash, id, at + cacheMs)
      else if (changesBefore === changes) unknown.put(hash, undefined, at + cacheMs)
      return id
    }
    return fallBackToLast(store.get(HASHES + hash), remember, keepsStale ? known.last(hash) : undefined)
  }

  function forget(hash: string): void {
    changes += 1
    known.forget(hash)
    unknown.forget(hash)
  }

  return { find, keys, forget }
}

/** Prefix of a generated secret. */
export type KeyFormat = 'sk-bf' | 'sk-svc'

/** Maximum length of a secret, in characters. */
const MAX_SECRET = 512
const PREFIX_LENGTH = 10

/** Returns a new secret: the format and a version 4 UUID. */
export function createSecret(format: KeyFormat, uuid: () => string): string {
  return `${format}-${uuid()}`
}

/** Returns the SHA-256 of a secret as 64 hex digits, or undefined for a string with an invalid length. */
export function hashSecret(secret: string): string | undefined {
  return secret.length === 0 || secret.length > MAX_SECRET ? undefined : sha256(secret)
}

/** Returns the part of a secret that is shown in lists. */
export function prefixOfSecret(secret: string): string {
  return secret.slice(0, PREFIX_LENGTH)
}

/** Compares the hashes of two secrets in constant time. */
export function isSameSecret(actual: string, expected: string): boolean {
  return isSameHash(hashSecret(actual) ?? '', hashSecret(expected) ?? '-')
}

/** Compares two strings in a time that depends only on their lengths. */
export function isSameHash(actual: string, expected: string): boolean {
  if (actual.length !== expected.length) return false
  let difference = 0
  for (let index = 0; index < actual.length; index += 1) {
    difference |= actual.charCodeAt(index) ^ expected.charCodeAt(index)
  }
  return difference === 0
}
