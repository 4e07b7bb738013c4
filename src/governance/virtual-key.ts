import * as z from 'zod/mini'
import type { NanoUsd } from '../core/money.ts'
import { DURATION_CODES, type DurationCode } from '../core/store.ts'
import { sha256 } from '#hash'
import { chain, type MaybePromise } from '../core/async.ts'
import {
  CACHE_MS,
  createBoundedCache,
  createRecordTable,
  type LookupOptions,
  MAX_CACHED_RECORDS,
  fallBackToLast,
  type RecordTable,
} from './record-table.ts'

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
  readonly providers: readonly ProviderConfig[]
  readonly permissions: Permissions
}

export interface Allowance<Amount extends number = number> {
  readonly max: Amount
  readonly every: DurationCode
}

/** Requests whose model names have no provider prefix are divided among the providers by weight. */
export interface ProviderConfig {
  readonly provider: string
  readonly weight: number
  /** Model ids, exact or with a trailing `*`. Empty: all models. */
  readonly allowedModels: readonly string[]
}

export interface Permissions {
  /** `<provider>/<model_id>` or aliases, exact or with a trailing `*`. @default all models */
  readonly allowedModels?: readonly string[]
  readonly maxTokens?: number
  readonly disableTools?: boolean
}

export interface Budget {
  readonly id: string
  readonly name: string
  readonly limit: Allowance<NanoUsd>
}

export interface RateLimit extends LimitPlan {
  readonly id: string
  readonly name: string
}

interface LimitPlan {
  readonly requests?: Allowance
  readonly tokens?: Allowance
}

export type PlanName =
  | 'free'
  | 'pro'
  | 'enterprise'
  | 'messages-free'
  | 'messages-basic'
  | 'messages-pro'
  | 'messages-enterprise'

const PLANS: Readonly<Record<PlanName, LimitPlan>> = {
  free: createPlan(100, 100_000, '1h'),
  pro: createPlan(1_000, 1_000_000, '1h'),
  enterprise: {},
  'messages-free': createPlan(60, 40_000, '1m'),
  'messages-basic': createPlan(300, 200_000, '1m'),
  'messages-pro': createPlan(1_000, 1_000_000, '1m'),
  'messages-enterprise': {},
}

export const PLAN_NAMES: readonly PlanName[] = Object.keys(PLANS) as PlanName[]

function createPlan(requests: number, tokens: number, every: DurationCode): LimitPlan {
  return { requests: { max: requests, every }, tokens: { max: tokens, every } }
}

export function effectiveRateLimits(key: VirtualKey): LimitPlan {
  const planLimits = PLAN_NAMES.includes(key.plan as PlanName) ? PLANS[key.plan as PlanName] : {}
  const requests = key.requests ?? planLimits.requests
  const tokens = key.tokens ?? planLimits.tokens
  return { ...(requests !== undefined && { requests }), ...(tokens !== undefined && { tokens }) }
}

// Records with an invalid field are rejected. Otherwise, a limit that cannot be parsed would no longer apply.
const amountSchema = z.custom<NanoUsd>((value) => Number.isSafeInteger(value) && Number(value) >= 0)
const allowanceSchema = z.object({ max: amountSchema, every: z.enum(DURATION_CODES) })

const storedKeySchema: z.ZodMiniType<VirtualKey> = z.object({
  id: z.string(),
  name: z.string(),
  description: z.string(),
  hash: z.string().check(z.regex(/^[0-9a-f]{64}$/)),
  prefix: z.string(),
  createdAt: z.number(),
  active: z.boolean(),
  expiresAt: z.exactOptional(z.number()),
  budget: z.exactOptional(allowanceSchema),
  requests: z.exactOptional(allowanceSchema),
  tokens: z.exactOptional(allowanceSchema),
  budgetId: z.exactOptional(z.string()),
  rateLimitId: z.exactOptional(z.string()),
  plan: z.exactOptional(z.enum(PLAN_NAMES)),
  providers: z.array(z.object({ provider: z.string(), weight: z.number(), allowedModels: z.array(z.string()) })),
  permissions: z.object({
    allowedModels: z.exactOptional(z.array(z.string())),
    maxTokens: z.exactOptional(amountSchema),
    disableTools: z.exactOptional(z.boolean()),
  }),
})

const storedBudgetSchema: z.ZodMiniType<Budget> = z.object({
  id: z.string(),
  name: z.string(),
  limit: allowanceSchema,
})

const storedRateLimitSchema: z.ZodMiniType<RateLimit> = z.object({
  id: z.string(),
  name: z.string(),
  requests: z.exactOptional(allowanceSchema),
  tokens: z.exactOptional(allowanceSchema),
})

export interface SharedLimits {
  readonly budgets: RecordTable<Budget>
  readonly rateLimits: RecordTable<RateLimit>
}

export function createSharedLimits(options: LookupOptions): SharedLimits {
  return {
    budgets: createRecordTable({ ...options, prefix: 'budget:', label: 'budget', schema: storedBudgetSchema }),
    rateLimits: createRecordTable({
      ...options,
      prefix: 'rate-limit:',
      label: 'rate limit',
      schema: storedRateLimitSchema,
    }),
  }
}

export interface KeyLookup {
  /** The key may be inactive or expired. Changes by other processes are visible within `cacheMs`. */
  find(secret: string): MaybePromise<VirtualKey | undefined>
  readonly keys: RecordTable<VirtualKey>
  /** Must be called after the key is changed or deleted. */
  forget(hash: string): void
}

/** Entries under this prefix map the hash of a secret to the id of its key. */
export const HASH_PREFIX = 'key-hash:'

export function createKeyLookup(options: LookupOptions): KeyLookup {
  const { store, now, cacheMs = CACHE_MS, servesStale = false } = options
  const keys = createRecordTable({ ...options, prefix: 'key:', label: 'virtual key', schema: storedKeySchema })
  const idsByHash = createBoundedCache<string>(MAX_CACHED_RECORDS)
  /** A separate cache, because a flood of unknown secrets would otherwise evict valid keys. */
  const unknownHashes = createBoundedCache<undefined>(MAX_CACHED_RECORDS)

  function find(secret: string): MaybePromise<VirtualKey | undefined> {
    const hash = hashSecret(secret)
    if (hash === undefined) return undefined
    return chain(findId(hash), (id) =>
      id === undefined
        ? undefined
        : chain(keys.find(id), (key) => (key !== undefined && isSameHash(key.hash, hash) ? key : undefined)),
    )
  }

  /** A lookup that began before a change must not cache its hash as unknown. */
  let changeCount = 0

  function findId(hash: string): MaybePromise<string | undefined> {
    const at = now()
    const cached = idsByHash.get(hash, at)
    if (cached !== undefined) return cached.value
    if (unknownHashes.get(hash, at) !== undefined) return undefined
    const countBefore = changeCount
    const remember = (id: string | undefined): string | undefined => {
      if (id !== undefined) idsByHash.put(hash, id, at + cacheMs)
      else if (countBefore === changeCount) unknownHashes.put(hash, undefined, at + cacheMs)
      return id
    }
    return fallBackToLast(store.get(HASH_PREFIX + hash), remember, servesStale ? idsByHash.last(hash) : undefined)
  }

  function forget(hash: string): void {
    changeCount += 1
    idsByHash.forget(hash)
    unknownHashes.forget(hash)
  }

  return { find, keys, forget }
}

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
