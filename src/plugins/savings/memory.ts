import { LRUCache } from 'lru-cache'
import { deletePrefix } from '../../core/delete-prefix.ts'
import { NO_USAGE, costOf, costOfTokens, ZERO, type NanoUsd } from '../../core/money.ts'
import { asObject, type Json, parseJson } from '../../core/json.ts'
import type { Model } from '../../core/ports.ts'
import { quotaOf, type Store } from '../../core/store.ts'
import { fingerprintOf, type Prompt } from '../../core/prompt.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'
import { conversationOf } from './conversation.ts'
import { parseSnapshot, type Snapshot } from './snapshot.ts'
import type { TierJob, TierNumber } from './tier.ts'

export type { Block, Snapshot } from './snapshot.ts'

/** State between turns. No method rejects: a lost value may cost money, but must not fail a request. */
export interface ConversationMemory {
  recall(owner: string, key: string): Promise<string | undefined>
  /** Reads only the cache of this process. */
  peek(owner: string, key: string): string | undefined
  remember(owner: string, key: string, value: string): Promise<void>
}

const TTL_MS = 60 * 60 * 1000
const MAX_CACHED_BYTES = 32 * 1024 * 1024
const MAX_VALUE_LENGTH = 256 * 1024

interface MemoryOptions {
  readonly store: Pick<Store, 'get' | 'set'>
  readonly now: () => number
}

type MemoryCache = LRUCache<string, { readonly value: string; readonly expiresAt: number }>

/** By store. All memories of a gateway have one store. */
const caches = new WeakMap<MemoryOptions['store'], MemoryCache>()

function cacheOf(store: MemoryOptions['store']): MemoryCache {
  const known = caches.get(store)
  if (known !== undefined) return known
  const cache: MemoryCache = new LRUCache({
    maxSize: MAX_CACHED_BYTES,
    sizeCalculation: (entry, key) => 2 * (entry.value.length + key.length) + 64,
  })
  caches.set(store, cache)
  return cache
}

function keyOf(owner: string, key: string): string {
  return `savings:${owner}:${key}`
}

/** @param store That of the memories of the gateway. */
export async function purgeMemory(owner: string, store: Store): Promise<void> {
  const prefix = keyOf(owner, '')
  await deletePrefix(store, prefix, yieldToEventLoop)
  const cache = cacheOf(store)
  for (const key of cache.keys()) if (key.startsWith(prefix)) cache.delete(key)
}

export function createMemory({ store, now }: MemoryOptions): ConversationMemory {
  const cache = cacheOf(store)
  const peek = (owner: string, key: string): string | undefined => {
    const entry = cache.get(keyOf(owner, key))
    return entry !== undefined && entry.expiresAt > now() ? entry.value : undefined
  }
  return {
    peek,
    async recall(owner, key) {
      const cached = peek(owner, key)
      if (cached !== undefined) return cached
      try {
        const value = await store.get(keyOf(owner, key))
        if (value !== undefined) cache.set(keyOf(owner, key), { value, expiresAt: now() + TTL_MS })
        return value
      } catch {
        return undefined
      }
    },
    async remember(owner, key, value) {
      if (value.length > MAX_VALUE_LENGTH) return
      cache.set(keyOf(owner, key), { value, expiresAt: now() + TTL_MS })
      try {
        await store.set(keyOf(owner, key), value, { ttlMs: TTL_MS, quota: quotaOf('savings', owner) })
      } catch {
        // Ignored, because a lost value must not fail the request.
      }
    },
  }
}

/** A turn usually adds two segments: a response and a question. A client may add two turns at once. */
const MAX_ADDED_SEGMENTS = 4

export async function recallFirst(
  memory: ConversationMemory,
  owner: string,
  keys: readonly string[],
): Promise<Json | undefined> {
  const values = await Promise.all(keys.map((key) => memory.recall(owner, key)))
  const first = values.find((value) => value !== undefined)
  return first === undefined ? undefined : parseJson(first)
}

export async function rememberLatest(
  memory: ConversationMemory,
  { owner, prompt }: TierJob,
  kind: string,
  value: number | Snapshot | RequestedCut,
): Promise<void> {
  const { prefixHashes, segments } = conversationOf(prompt)
  await memory.remember(owner, `${kind}:${prefixHashes.at(segments.length)}`, JSON.stringify(value))
}

/** Falls back to recent prefixes. `minAdded` 1 ignores the value of an earlier attempt of this request. */
export async function recallLatest(
  memory: ConversationMemory,
  { owner, prompt }: TierJob,
  kind: string,
  minAdded = 0,
): Promise<Json | undefined> {
  const { prefixHashes, segments } = conversationOf(prompt)
  const max = segments.length - minAdded
  const counts = Array.from({ length: Math.min(max, MAX_ADDED_SEGMENTS + 1 - minAdded) }, (_, index) => max - index)
  const keys = counts.map((count) => `${kind}:${prefixHashes.at(count)}`)
  return recallFirst(memory, owner, keys)
}

export async function recallSnapshot(
  memory: ConversationMemory,
  job: TierJob,
  kind: string,
): Promise<Snapshot | undefined> {
  return parseSnapshot(await recallLatest(memory, job, kind))
}

/** How long upstreams are assumed to cache a prompt after its last use. */
export const UPSTREAM_CACHE_MS: number = 5 * 60 * 1000

export function hasCachePrice({ price }: Model): boolean {
  return price.cacheRead !== undefined && price.cacheRead < price.input
}

/** The beginning of a prompt that its markers make the vendor cache. */
export interface Cacheable {
  readonly tokens: number
  readonly ttlMs: number
}

/**
 * If the model has a cache price, the tokens after the first `cachedTokens` count as written to the cache.
 *
 * @param cacheable Of a prompt with markers. Without it, the upstream caches the whole prompt.
 */
export function sendingCost(model: Model, tokens: number, cachedTokens: number, cacheable?: Cacheable): NanoUsd {
  if (!hasCachePrice(model)) return costOfTokens(model.price, Math.round(tokens), 0)
  const total = Math.round(tokens)
  const marked = Math.min(total, Math.round(cacheable?.tokens ?? total))
  const cacheReadTokens = Math.min(marked, Math.round(cachedTokens))
  const written = marked - cacheReadTokens
  const writes =
    (cacheable?.ttlMs ?? 0) > UPSTREAM_CACHE_MS ? { cacheWrite1hTokens: written } : { cacheWriteTokens: written }
  return costOf({ ...NO_USAGE, inputTokens: total - marked, cacheReadTokens, ...writes }, model.price)
}

/** Returns the growth between two cuts, in tokens, that minimizes the cost. Returns 0 without a cache price. */
export function bestGrowth(model: Model, cutCost: NanoUsd, tokensPerTurn: number): number {
  if (!hasCachePrice(model)) return 0
  const million = 1_000_000
  const readCost = sendingCost(model, million, million) / million
  return Math.round(Math.sqrt((2 * cutCost * tokensPerTurn) / Math.max(1, readCost)))
}

/** `at` is in milliseconds since 1970, or 0 for never. */
export interface SentAt {
  readonly at: number
  /** @default 5 minutes */
  readonly ttlMs?: number
}

/** `tokens` is the size of the prefix that the upstream caches. */
export interface SentPrompt extends SentAt {
  readonly tokens: number
}

/** The last rewrite that a header requested, as it was sent. */
export interface RequestedCut extends Snapshot, SentPrompt {
  /** Tokens before the block. */
  readonly stableTokens: number
  readonly strategy: string
}

/** What this gateway has sent of a conversation, with sizes as this gateway counts. */
export interface History extends SentPrompt {
  /** The last prompt that was sent unchanged. */
  readonly whole: SentPrompt
  readonly rewritten: SentPrompt & { readonly tier: TierNumber | 0; readonly isRequested: boolean }
  /** Estimated cost of the conversation minus its cost with unchanged prompts. Negative if the tiers saved money. */
  readonly debt: NanoUsd
  /** Moving average of the fraction of expected cache reads that the upstream reported, from `MIN_TRUST` to 1. */
  readonly trust: number
  /** The vendor's tokens per estimated token, as reported for the last prompt that was sent unchanged. */
  readonly vendorRatio?: number
}

const NEVER_SENT: SentPrompt = { tokens: 0, at: 0 }
export const NEW_CONVERSATION: History = {
  at: 0,
  tokens: 0,
  whole: NEVER_SENT,
  rewritten: { ...NEVER_SENT, tier: 0, isRequested: false },
  debt: ZERO,
  trust: 1,
}

/** Fields of a body that do not change which entries of the vendor's cache a prompt can read. Messages are hashed. */
const FIELDS_WITHOUT_EFFECT: ReadonlySet<string> = new Set(
  (
    'messages input system instructions tools model stream stream_options max_tokens max_completion_tokens ' +
    'max_output_tokens temperature top_p top_k n stop stop_sequences seed user metadata safety_identifier store ' +
    'presence_penalty frequency_penalty logit_bias logprobs top_logprobs previous_response_id conversation include ' +
    'truncation prediction cache_control'
  ).split(' '),
)

const scopes = new WeakMap<Prompt, string>()

/**
 * Names the cache entries of a vendor that a prompt can read: those of the same model, tools and fields, such as
 * `response_format`, `thinking` and `prompt_cache_key`.
 */
export function cacheScopeOf({ id }: Model, prompt: Prompt): string {
  let scope = scopes.get(prompt)
  if (scope === undefined) {
    const fields = Object.entries(prompt.native.value).filter(([name]) => !FIELDS_WITHOUT_EFFECT.has(name))
    const tools = prompt.tools.map(({ native }) => native.value)
    scopes.set(prompt, (scope = String(fingerprintOf(JSON.stringify([tools, fields])))))
  }
  return `${id}:${scope}`
}

export function isWarm({ at, ttlMs = UPSTREAM_CACHE_MS }: SentAt, now: number): boolean {
  return at > 0 && now - at <= ttlMs
}

export function warmTokens(
  sent: SentPrompt,
  job: Pick<TierJob, 'model' | 'now'>,
  { trust }: Pick<History, 'trust'>,
): number {
  return hasCachePrice(job.model) && isWarm(sent, job.now) ? Math.round(sent.tokens * trust) : 0
}

export function toSentPrompt(tokens: number, at: number, cacheable: Cacheable | undefined): SentPrompt {
  return cacheable === undefined
    ? { tokens, at }
    : { tokens: Math.min(tokens, cacheable.tokens), at, ttlMs: cacheable.ttlMs }
}

export function parseSentAt(value: Json | undefined): SentAt | undefined {
  const { at, ttlMs } = asObject(value) ?? {}
  if (typeof at !== 'number') return undefined
  return typeof ttlMs === 'number' ? { at, ttlMs } : { at }
}

export function parseSent(value: Json | undefined): SentPrompt | undefined {
  const sent = parseSentAt(value)
  const tokens = asObject(value)?.['tokens']
  return sent === undefined || typeof tokens !== 'number' ? undefined : { ...sent, tokens }
}
