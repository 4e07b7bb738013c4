import { LRUCache } from 'lru-cache'
import { NO_USAGE, add, costOf, costOfTokens, toNanoUsd, subtract, ZERO, type NanoUsd } from '../core/money.ts'
import { asArray, asCount, asObject, type Json, parseJson } from '../core/json.ts'
import type { Model } from '../core/ports.ts'
import { quotaOf, type Store } from '../core/store.ts'
import { fingerprintOf, type Prompt } from '../core/prompt.ts'
import { conversationOf } from './conversation.ts'
import type { TierJob, TierNumber } from './tier.ts'

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

export function createMemory({ store, now }: MemoryOptions): ConversationMemory {
  const cache = new LRUCache<string, { readonly value: string; readonly expiresAt: number }>({
    maxSize: MAX_CACHED_BYTES,
    sizeCalculation: (entry, key) => 2 * (entry.value.length + key.length) + 64,
  })
  const keyOf = (owner: string, key: string): string => `savings:${owner}:${key}`
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

/** A turn usually adds two segments: an answer and a question. A client may add two turns at once. */
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
  value: number | History | Snapshot,
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

/** Earlier parts of the conversation, inserted before the message with the index `before`. */
export interface Block {
  readonly before: number
  readonly text: string
}

/** Later turns repeat the cut, so that the upstream can read the prompt prefix from its cache. */
export interface Snapshot {
  /** Segments from this index on are sent unchanged. */
  readonly from: number
  /** One list per sent segment before `from`: its index, then its snippets' indexes, or -1 if it is unchanged. */
  readonly picks: readonly (readonly number[])[]
  readonly notice: string
  /** Index of the first message of the live turn at the time of the cut. A gap inserted before it stays there. */
  readonly questionIndexAtCut: number
  /** Sent again on each step of its live turn. The next question gets another block. @default none */
  readonly block?: Block
  readonly at: number
}

export async function recallSnapshot(
  memory: ConversationMemory,
  job: TierJob,
  kind: string,
): Promise<Snapshot | undefined> {
  const { from, picks, notice, questionIndexAtCut, block, at } = asObject(await recallLatest(memory, job, kind)) ?? {}
  if (typeof from !== 'number' || typeof notice !== 'string' || typeof questionIndexAtCut !== 'number') return undefined
  return {
    from,
    picks: asArray(picks).map((pick) => asArray(pick).filter((index) => typeof index === 'number')),
    notice,
    questionIndexAtCut,
    ...parseBlock(block),
    at: asCount(at) ?? 0,
  }
}

function parseBlock(value: Json | undefined): Pick<Snapshot, 'block'> {
  const { before, text } = asObject(value) ?? {}
  return typeof before === 'number' && typeof text === 'string' ? { block: { before, text } } : {}
}

/** How long upstreams are assumed to cache a prompt after its last use. */
export const UPSTREAM_CACHE_MS: number = 5 * 60 * 1000

export function hasCachePrice({ price }: Model): boolean {
  return price.cacheRead !== undefined && price.cacheRead < price.input
}

/** If the model has a cache price, all tokens after the first `cachedTokens` count as written to the cache. */
export function sendingCost(model: Model, tokens: number, cachedTokens: number): NanoUsd {
  if (!hasCachePrice(model)) return costOfTokens(model.price, Math.round(tokens), 0)
  const read = Math.round(Math.min(cachedTokens, tokens))
  return costOf({ ...NO_USAGE, cacheReadTokens: read, cacheWriteTokens: Math.round(tokens) - read }, model.price)
}

/** Returns the growth between two cuts, in tokens, that minimizes the cost. Returns 0 without a cache price. */
export function bestGrowth(model: Model, cutCost: NanoUsd, tokensPerTurn: number): number {
  if (!hasCachePrice(model)) return 0
  const million = 1_000_000
  const readCost = sendingCost(model, million, million) / million
  return Math.round(Math.sqrt((2 * cutCost * tokensPerTurn) / Math.max(1, readCost)))
}

export interface SentPrompt {
  readonly tokens: number
  readonly at: number
}

export interface History {
  readonly at: number
  readonly tokens: number
  /** The last prompt that was sent unchanged. */
  readonly whole: SentPrompt
  readonly rewritten: SentPrompt & { readonly tier: TierNumber | 0 }
  /** Estimated cost of the conversation minus its cost with unchanged prompts. Negative if the tiers saved money. */
  readonly debt: NanoUsd
  /** Moving average of the fraction of expected cache reads that the upstream reported, from `MIN_TRUST` to 1. */
  readonly trust: number
}

const NEVER_SENT: SentPrompt = { tokens: 0, at: 0 }
export const NEW_CONVERSATION: History = {
  at: 0,
  tokens: 0,
  whole: NEVER_SENT,
  rewritten: { ...NEVER_SENT, tier: 0 },
  debt: ZERO,
  trust: 1,
}

/** Names the cache entries of a vendor that a prompt can read: those of the same model and tools. */
export function cacheScopeOf({ id }: Model, { tools }: Prompt): string {
  return `${id}:${fingerprintOf(JSON.stringify(tools.map(({ native }) => native.value)))}`
}

function historyKindOf({ model, prompt }: TierJob): string {
  return `sent:${cacheScopeOf(model, prompt)}`
}

export function isWarm({ at }: { readonly at: number }, now: number): boolean {
  return at > 0 && now - at <= UPSTREAM_CACHE_MS
}

export function warmTokens(sent: SentPrompt, job: TierJob, { trust }: Pick<History, 'trust'>): number {
  return hasCachePrice(job.model) && isWarm(sent, job.now) ? Math.round(sent.tokens * trust) : 0
}

export async function recallHistory(memory: ConversationMemory, job: TierJob): Promise<History> {
  return parseHistory(await recallLatest(memory, job, historyKindOf(job))) ?? NEW_CONVERSATION
}

export interface SentRequest {
  readonly tier?: TierNumber
  readonly tokens: number
  /** Tokens that the next turn repeats. @default all */
  readonly stableTokens?: number
  readonly cachedTokens: number
  readonly spent: NanoUsd
}

export async function rememberSent(
  memory: ConversationMemory,
  job: TierJob,
  history: History,
  sent: SentRequest,
): Promise<History> {
  const { model, tokens, now: at } = job
  const cost = add(sendingCost(model, sent.tokens, sent.cachedTokens), sent.spent)
  const unchangedCost = sendingCost(model, tokens, warmTokens(history, job, history))
  const { tier, stableTokens = sent.tokens } = sent
  const next: History = {
    ...history,
    at,
    tokens,
    ...(tier === undefined ? { whole: { tokens, at } } : { rewritten: { tier, tokens: stableTokens, at } }),
    debt: add(history.debt, subtract(cost, unchangedCost)),
  }
  await rememberLatest(memory, job, historyKindOf(job), next)
  return next
}

const NEWEST_WEIGHT = 0.5
/** Minimum fraction that counts as a full read, because upstreams cache only complete blocks. */
const FULL_READ_SHARE = 0.9
/** Above 0, because `correctTrust` ignores requests for which no cache read was expected. */
const MIN_TRUST = 0.01

export async function correctTrust(
  memory: ConversationMemory,
  job: TierJob,
  history: History,
  { cachedTokens, read }: { readonly cachedTokens: number; readonly read: number },
): Promise<void> {
  if (cachedTokens <= 0) return
  // `cachedTokens` was already multiplied by the trust.
  const expected = cachedTokens / history.trust
  const share = read >= expected * FULL_READ_SHARE ? 1 : read / expected
  const trust = Math.max(MIN_TRUST, (1 - NEWEST_WEIGHT) * history.trust + NEWEST_WEIGHT * share)
  if (trust !== history.trust) await rememberLatest(memory, job, historyKindOf(job), { ...history, trust })
}

function parseHistory(value: Json | undefined): History | undefined {
  const { whole, rewritten, debt, trust = 1 } = asObject(value) ?? {}
  const last = parseSent(value)
  const lastWhole = parseSent(whole)
  const lastRewritten = parseSent(rewritten)
  if (last === undefined || lastWhole === undefined || lastRewritten === undefined) return undefined
  if (typeof debt !== 'number' || typeof trust !== 'number') return undefined
  return {
    ...last,
    whole: lastWhole,
    rewritten: { ...lastRewritten, tier: tierOf(rewritten) },
    debt: toNanoUsd(debt),
    trust: Math.min(1, Math.max(MIN_TRUST, trust)),
  }
}

export function parseSent(value: Json | undefined): SentPrompt | undefined {
  const { at, tokens } = asObject(value) ?? {}
  return typeof at === 'number' && typeof tokens === 'number' ? { at, tokens } : undefined
}

function tierOf(value: Json | undefined): TierNumber | 0 {
  const tier = asObject(value)?.['tier']
  return tier === 2 || tier === 3 || tier === 4 || tier === 5 ? tier : 0
}
