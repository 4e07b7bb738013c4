/** Virtual keys, shared budgets and shared rate limits, as the store has them. */
import * as z from 'zod/mini'
import { chain, type MaybePromise } from '../core/async.ts'
import type { NanoUsd } from '../core/money.ts'
import { DURATION_CODES } from '../core/store.ts'
import { BoundedCache, CACHE_MS, fallBackToLast, type LookupOptions, RecordTable } from './record-table.ts'
import { type Budget, hashSecret, isSameHash, PLAN_NAMES, type RateLimit, type VirtualKey } from './virtual-key.ts'

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
  customer: z.exactOptional(z.string()),
  trustsContext: z.exactOptional(z.boolean()),
  providers: z.array(z.object({ provider: z.string(), weight: z.number(), allowedModels: z.array(z.string()) })),
  permissions: z.object({
    allowedModels: z.exactOptional(z.array(z.string())),
    maxTokens: z.exactOptional(amountSchema),
    disableTools: z.exactOptional(z.boolean()),
    cacheSimilar: z.exactOptional(z.boolean()),
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
    budgets: new RecordTable({ ...options, prefix: 'budget:', label: 'budget', schema: storedBudgetSchema }),
    rateLimits: new RecordTable({
      ...options,
      prefix: 'rate-limit:',
      label: 'rate limit',
      schema: storedRateLimitSchema,
    }),
  }
}

/** Entries under this prefix map the hash of a secret to the id of its key. */
export const HASH_PREFIX = 'key-hash:'

/** Finds virtual keys by their secrets. */
export class KeyLookup {
  readonly keys: RecordTable<VirtualKey>
  readonly #options: LookupOptions
  readonly #idsByHash = new BoundedCache<string>()
  /** A separate cache, because a flood of unknown secrets would otherwise evict valid keys. */
  readonly #unknownHashes = new BoundedCache<undefined>()
  /** A lookup that began before a change must not cache its hash as unknown. */
  #changeCount = 0

  constructor(options: LookupOptions) {
    this.#options = options
    this.keys = new RecordTable({
      ...options,
      prefix: 'key:',
      hasUsage: true,
      label: 'virtual key',
      schema: storedKeySchema,
    })
  }

  /** The key may be inactive or expired. */
  find(secret: string): MaybePromise<VirtualKey | undefined> {
    const hash = hashSecret(secret)
    if (hash === undefined) return undefined
    return chain(this.#findId(hash), (id) =>
      id === undefined
        ? undefined
        : chain(this.keys.find(id), (key) => (key !== undefined && isSameHash(key.hash, hash) ? key : undefined)),
    )
  }

  /** Must be called after the entry of the hash is written or deleted. */
  forget(hash: string): void {
    this.#changeCount += 1
    this.#idsByHash.forget(hash)
    this.#unknownHashes.forget(hash)
  }

  #findId(hash: string): MaybePromise<string | undefined> {
    const { store, now, cacheMs = CACHE_MS, servesStale = false } = this.#options
    const at = now()
    const cached = this.#idsByHash.get(hash, at)
    if (cached !== undefined) return cached.value
    if (this.#unknownHashes.get(hash, at) !== undefined) return undefined
    const countBefore = this.#changeCount
    const remember = (id: string | undefined): string | undefined => {
      if (id !== undefined) this.#idsByHash.put(hash, id, at + cacheMs)
      else if (countBefore === this.#changeCount) this.#unknownHashes.put(hash, undefined, at + cacheMs)
      return id
    }
    const last = servesStale ? this.#idsByHash.last(hash) : undefined
    return fallBackToLast(store.get(HASH_PREFIX + hash), remember, last)
  }
}
