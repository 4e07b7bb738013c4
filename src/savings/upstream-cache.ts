import { asCount, isJsonObject, type Json, parseJson } from '../core/json.ts'
import { add, nano, subtract, ZERO, type NanoUsd } from '../core/money.ts'
import { conversationOf } from './conversation.ts'
import { type ConversationMemory, recallAt, rememberAt } from './memory.ts'
import { hasCachePrice, sendingCost } from './net.ts'
import type { TierJob, TierNumber } from './tier.ts'

/** The size of a sent prompt, and when it was sent. */
interface SentPrompt {
  readonly tokens: number
  /** Milliseconds since 1970. */
  readonly at: number
}

/** The history of a conversation: what the upstream may have cached, and what it has cost. */
export interface History {
  /** Time of the last request; 0 for a new conversation. */
  readonly at: number
  /** Tokens of the whole conversation at that time. */
  readonly tokens: number
  /** The last time that it was sent whole. */
  readonly whole: SentPrompt
  /** The last time that a tier rewrote it. */
  readonly rewritten: SentPrompt & { readonly tier: TierNumber | 0 }
  /** Cost so far above sending everything on every turn; negative when it was cheaper. */
  readonly debt: NanoUsd
  /**
   * Share, from 0 to 1, of the expected cached tokens that the upstream has recently reported as read from its cache.
   */
  readonly trust: number
}

const NEVER: SentPrompt = { tokens: 0, at: 0 }
export const NEW_CONVERSATION: History = {
  at: 0,
  tokens: 0,
  whole: NEVER,
  rewritten: { ...NEVER, tier: 0 },
  debt: ZERO,
  trust: 1,
}

/** Time for which upstreams cache a prompt. */
const UPSTREAM_CACHE_MS = 5 * 60 * 1000
const KIND = 'sent'

/** Returns true while the upstream still caches what was sent at that time. */
export function isWarm({ at }: { readonly at: number }, now: number): boolean {
  return at > 0 && now - at <= UPSTREAM_CACHE_MS
}

/** Returns the tokens at the start of a sent prompt that the upstream probably has cached, judged by its reports. */
export function warmTokens(sent: SentPrompt, job: TierJob, { trust }: Pick<History, 'trust'>): number {
  return hasCachePrice(job.model) && isWarm(sent, job.now) ? Math.round(sent.tokens * trust) : 0
}

export async function recallHistory(memory: ConversationMemory, job: TierJob): Promise<History> {
  return parseHistory(await recallAt(memory, job.owner, conversationOf(job.prompt), KIND)) ?? NEW_CONVERSATION
}

/** How a request was sent: whole, or rewritten by a tier. */
export interface SentRequest {
  readonly tier?: TierNumber
  readonly tokens: number
  /** Tokens of it that the upstream had cached. */
  readonly warm: number
  /** Cost of all small-model calls, those of tiers that declined included. */
  readonly spent: NanoUsd
}

/** Remembers what was sent. Returns the updated history. */
export async function rememberSent(
  memory: ConversationMemory,
  job: TierJob,
  history: History,
  sent: SentRequest,
): Promise<History> {
  const { model, tokens, now: at } = job
  const cost = add(sendingCost(model, sent.tokens, sent.warm), sent.spent)
  const alwaysWhole = sendingCost(model, tokens, warmTokens(history, job, history))
  const { tier } = sent
  const next: History = {
    at,
    tokens,
    whole: tier === undefined ? { tokens, at } : history.whole,
    rewritten: tier === undefined ? history.rewritten : { tier, tokens: sent.tokens, at },
    debt: add(history.debt, subtract(cost, alwaysWhole)),
    trust: history.trust,
  }
  await rememberHistory(memory, job, next)
  return next
}

async function rememberHistory(memory: ConversationMemory, job: TierJob, history: History): Promise<void> {
  await rememberAt(memory, job.owner, conversationOf(job.prompt), { kind: KIND, value: JSON.stringify(history) })
}

/** Weight of the newest report. */
const NEWEST_SHARE = 0.5
/** Upstreams cache in blocks, so a cached prompt is never read to its end. */
const FULLY_READ = 0.9

/** Updates the trust in the upstream's cache: of `warm` expected tokens it reported `read`. */
export async function correctTrust(
  memory: ConversationMemory,
  job: TierJob,
  history: History,
  { warm, read }: { readonly warm: number; readonly read: number },
): Promise<void> {
  if (warm <= 0) return
  // The expected warm tokens were already reduced by the previous trust.
  const expected = history.trust > 0 ? warm / history.trust : warm
  const share = read >= expected * FULLY_READ ? 1 : read / expected
  const trust = Math.max(MIN_TRUST, (1 - NEWEST_SHARE) * history.trust + NEWEST_SHARE * share)
  if (trust !== history.trust) await rememberHistory(memory, job, { ...history, trust })
}

/** Above zero, so that an upstream that starts to cache is noticed. */
const MIN_TRUST = 0.01

function parseHistory(text: string | undefined): History | undefined {
  const value = text === undefined ? undefined : parseJson(text)
  if (!isJsonObject(value)) return undefined
  const sent = parseSent(value)
  const whole = parseSent(value['whole'])
  const rewritten = parseSent(value['rewritten'])
  const debt = value['debt']
  if (sent === undefined || whole === undefined || rewritten === undefined || typeof debt !== 'number') return undefined
  const trust = typeof value['trust'] === 'number' ? Math.min(1, Math.max(MIN_TRUST, value['trust'])) : 1
  return { ...sent, whole, rewritten: { ...rewritten, tier: tierOf(value['rewritten']) }, debt: nano(debt), trust }
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
