import { asObject, type Json } from '../core/json.ts'
import { add, type NanoUsd, subtract, toNanoUsd } from '../core/money.ts'
import {
  type Cacheable,
  cacheScopeOf,
  type ConversationMemory,
  type History,
  NEW_CONVERSATION,
  parseSent,
  recallLatest,
  rememberLatest,
  sendingCost,
  toSentPrompt,
  warmTokens,
} from './memory.ts'
import type { TierJob, TierNumber } from './tier.ts'

function historyKindOf({ model, prompt }: TierJob): string {
  return `sent:${cacheScopeOf(model, prompt)}`
}

/** Returns undefined for a conversation that this gateway has not sent. */
export async function recallHistory(memory: ConversationMemory, job: TierJob): Promise<History | undefined> {
  return parseHistory(await recallLatest(memory, job, historyKindOf(job)))
}

/** Assumes that another process has just sent the conversation up to its last answer. */
export function historyElsewhere({ prompt: { messages }, tokens, now }: TierJob, newTokens: number): History {
  const isContinued = messages.some(({ role }) => role === 'assistant')
  if (!isContinued) return NEW_CONVERSATION
  const sent = { tokens: Math.max(0, tokens - newTokens), at: now }
  return { ...NEW_CONVERSATION, ...sent, whole: sent }
}

export interface SentRequest {
  readonly tier?: TierNumber
  readonly tokens: number
  /** Tokens that the next turn repeats. @default all */
  readonly stableTokens?: number
  readonly cachedTokens: number
  readonly spent: NanoUsd
  readonly cacheable?: Cacheable | undefined
}

export async function rememberSent(
  memory: ConversationMemory,
  job: TierJob,
  history: History,
  { whole, sent }: { readonly whole?: Cacheable | undefined; readonly sent: SentRequest },
): Promise<History> {
  const { model, tokens, now: at } = job
  const cost = add(sendingCost(model, sent.tokens, sent.cachedTokens, sent.cacheable), sent.spent)
  const unchangedCost = sendingCost(model, tokens, warmTokens(history, job, history), whole)
  const { tier, stableTokens = sent.tokens } = sent
  const sentWhole = toSentPrompt(tokens, at, whole)
  const next: History = {
    ...history,
    ...sentWhole,
    ...(tier === undefined
      ? { whole: sentWhole }
      : { rewritten: { tier, ...toSentPrompt(stableTokens, at, sent.cacheable) } }),
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

function tierOf(value: Json | undefined): TierNumber | 0 {
  const tier = asObject(value)?.['tier']
  return tier === 2 || tier === 3 || tier === 4 || tier === 5 ? tier : 0
}
