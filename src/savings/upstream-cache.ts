import { asCount, isJsonObject, type Json, parseJson } from '../core/json.ts'
import type { Model } from '../core/ports.ts'
import { add, costOf, toNanoUsd, subtract, ZERO, type NanoUsd, NO_USAGE } from '../core/money.ts'
import type { Part, Prompt } from '../core/prompt.ts'
import { type ConversationMemory, recallLatest, rememberLatest } from './conversation.ts'
import type { TierJob, TierNumber } from './tier.ts'

/** How long upstreams cache a prompt after its last use. */
export const UPSTREAM_CACHE_MS: number = 5 * 60 * 1000

function hasCachePrice({ price }: Model): boolean {
  return price.cacheRead !== undefined && price.cacheRead < price.input
}

/**
 * Returns the cost of a prompt whose first `cachedTokens` tokens are in the upstream's cache. The upstream writes the
 * other tokens to its cache.
 */
export function sendingCost(model: Model, tokens: number, cachedTokens: number): NanoUsd {
  if (!hasCachePrice(model)) return costOf({ ...NO_USAGE, inputTokens: Math.round(tokens) }, model.price)
  const read = Math.round(Math.min(cachedTokens, tokens))
  return costOf({ ...NO_USAGE, cacheReadTokens: read, cacheWriteTokens: Math.round(tokens) - read }, model.price)
}

/**
 * Returns the number of tokens by which a cached prompt should grow before it is shortened again. Minimizes the cost of
 * shortening plus the cost of reading the added tokens; each turn adds `growth` tokens.
 */
export function bestGrowth(model: Model, cutCost: NanoUsd, growth: number): number {
  if (!hasCachePrice(model)) return 0
  const million = 1_000_000
  const readCost = sendingCost(model, million, million) / million
  return Math.round(Math.sqrt((2 * cutCost * growth) / Math.max(1, readCost)))
}

/**
 * Returns true if the caller marked a prefix with `cache_control`. Such a prompt is rewritten only if a steering header
 * requests it.
 */
export function hasCacheBreakpoints({ tools, messages }: Prompt): boolean {
  return tools.some(hasCacheControl) || messages.some(({ parts }) => parts.some(hasCacheControl))
}

export function hasCacheControl({ native }: Pick<Part, 'native'>): boolean {
  return native?.value['cache_control'] !== undefined
}

interface SentPrompt {
  readonly tokens: number
  readonly at: number
}

/** A conversation's earlier requests. Times are milliseconds since 1970. */
export interface History {
  readonly at: number
  readonly tokens: number
  /** The last prompt that was sent unchanged. */
  readonly whole: SentPrompt
  readonly rewritten: SentPrompt & { readonly tier: TierNumber | 0 }
  /** Cost of the conversation minus the cost of sending every turn unchanged. Negative if the tiers saved money. */
  readonly debt: NanoUsd
  /** Fraction of the expected cached tokens that the upstream recently reported as cache reads, from 0 to 1. */
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

const KIND = 'sent'

export function isWarm({ at }: { readonly at: number }, now: number): boolean {
  return at > 0 && now - at <= UPSTREAM_CACHE_MS
}

/** Returns how many tokens of a sent prompt the upstream is expected to have cached, corrected by its reports. */
export function warmTokens(sent: SentPrompt, job: TierJob, { trust }: Pick<History, 'trust'>): number {
  return hasCachePrice(job.model) && isWarm(sent, job.now) ? Math.round(sent.tokens * trust) : 0
}

export async function recallHistory(memory: ConversationMemory, job: TierJob): Promise<History> {
  return parseHistory(await recallLatest(memory, job, KIND)) ?? NEW_CONVERSATION
}

export interface SentRequest {
  readonly tier?: TierNumber
  readonly tokens: number
  /** Tokens that the upstream was expected to have cached. */
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
  const { tier } = sent
  const next: History = {
    at,
    tokens,
    whole: tier === undefined ? { tokens, at } : history.whole,
    rewritten: tier === undefined ? history.rewritten : { tier, tokens: sent.tokens, at },
    debt: add(history.debt, subtract(cost, unchangedCost)),
    trust: history.trust,
  }
  await rememberHistory(memory, job, next)
  return next
}

async function rememberHistory(memory: ConversationMemory, job: TierJob, history: History): Promise<void> {
  await rememberLatest(memory, job, KIND, JSON.stringify(history))
}

const NEWEST_WEIGHT = 0.5
/** Minimum fraction that counts as a full read, because upstreams cache only complete blocks. */
const FULL_READ_SHARE = 0.9
/**
 * Must be above 0: with a trust of 0, no prompt would be expected in the cache, so no report could raise the trust
 * again.
 */
const MIN_TRUST = 0.01

/** Corrects the trust after the upstream has read `read` tokens from its cache, where `cachedTokens` were expected. */
export async function correctTrust(
  memory: ConversationMemory,
  job: TierJob,
  history: History,
  { cachedTokens, read }: { readonly cachedTokens: number; readonly read: number },
): Promise<void> {
  if (cachedTokens <= 0) return
  // `cachedTokens` was already multiplied by the trust.
  const expected = history.trust > 0 ? cachedTokens / history.trust : cachedTokens
  const share = read >= expected * FULL_READ_SHARE ? 1 : read / expected
  const trust = Math.max(MIN_TRUST, (1 - NEWEST_WEIGHT) * history.trust + NEWEST_WEIGHT * share)
  if (trust !== history.trust) await rememberHistory(memory, job, { ...history, trust })
}

function parseHistory(text: string | undefined): History | undefined {
  const value = text === undefined ? undefined : parseJson(text)
  if (!isJsonObject(value)) return undefined
  const sent = parseSent(value)
  const whole = parseSent(value['whole'])
  const rewritten = parseSent(value['rewritten'])
  const debt = value['debt']
  if (sent === undefined || whole === undefined || rewritten === undefined || typeof debt !== 'number') return undefined
  const trust = typeof value['trust'] === 'number' ? Math.min(1, Math.max(MIN_TRUST, value['trust'])) : 1
  return { ...sent, whole, rewritten: { ...rewritten, tier: tierOf(value['rewritten']) }, debt: toNanoUsd(debt), trust }
}

function parseSent(value: Json | undefined): SentPrompt | undefined {
  if (!isJsonObject(value)) return undefined
  const at = asCount(value['at'])
  const tokens = asCount(value['tokens'])
  return at === undefined || tokens === undefined ? undefined : { at, tokens }
}

function tierOf(value: Json | undefined): TierNumber | 0 {
  const tier = isJsonObject(value) ? value['tier'] : 0
  return tier === 2 || tier === 3 || tier === 4 || tier === 5 ? tier : 0
}
