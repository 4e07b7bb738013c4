/**
 * The record of what this gateway has sent of each conversation. It counts in messages and in the vendor's own tokens, so
 * that a prompt that no tier can rewrite is recorded without being counted.
 */
import { asArray, asCount, asObject, type Json, parseJson } from '../../core/json.ts'
import { add, type NanoUsd, promptTokens, subtract, toNanoUsd } from '../../core/money.ts'
import type { Meter } from '../../core/ports.ts'
import type { Prompt } from '../../core/prompt.ts'
import { messageHashesOf } from './conversation.ts'
import {
  type Cacheable,
  cacheScopeOf,
  type ConversationMemory,
  type History,
  NEW_CONVERSATION,
  parseSent,
  parseSentAt,
  sendingCost,
  type SentAt,
  toSentPrompt,
  warmTokens,
} from './memory.ts'
import type { MarkedPrefix } from './prompt-cache.ts'
import type { SentReport, TierJob, TierNumber } from './tier.ts'

type RecordedJob = Pick<TierJob, 'prompt' | 'model' | 'owner' | 'now'>

/** The beginning of a prompt that the vendor caches. */
interface SentPrefix extends SentAt {
  /** Number of messages. */
  readonly count: number
  /** Its size as the vendor counts. Absent if the vendor has never reported it. */
  readonly tokens?: number
}

export interface SentRecord extends Pick<History, 'rewritten' | 'debt' | 'trust'> {
  /** Number of messages of the last request. */
  readonly count: number
  /** Hash of these messages. */
  readonly hash: string
  /** What the vendor would have cached if the last request had been sent unchanged. */
  readonly last: SentPrefix
  /** The last prompt that was sent unchanged. */
  readonly whole: SentPrefix
}

const NEVER: SentPrefix = { count: 0, at: 0 }
const { rewritten: NEVER_REWRITTEN, debt: NO_DEBT, trust: FULL_TRUST } = NEW_CONVERSATION
/** Conversations that have half of their messages in common share an entry. */
const MAX_RECORDS_PER_ENTRY = 8
/** A turn may add up to three times as many messages as the conversation had. */
const RECALLED_ENTRIES = 3

/**
 * A record is stored under the hash of its first 2^k messages, for the largest k. The next turn finds it with one of few
 * look-ups, however many messages it adds.
 */
function entriesOf({ prompt, model }: RecordedJob): readonly string[] {
  const hashes = messageHashesOf(prompt)
  const largest = Math.floor(Math.log2(Math.max(1, prompt.messages.length)))
  return Array.from({ length: Math.min(RECALLED_ENTRIES, largest + 1) }, (_, index) => {
    return `sent:${cacheScopeOf(model, prompt)}:${hashes.at(2 ** (largest - index))}`
  })
}

/** Returns undefined for a conversation that this gateway has not sent. */
export async function recallRecord(memory: ConversationMemory, job: RecordedJob): Promise<SentRecord | undefined> {
  const { owner, prompt } = job
  const { length } = prompt.messages
  const entries = await Promise.all(entriesOf(job).map((entry) => memory.recall(owner, entry)))
  const records = entries.flatMap(parseRecords).filter(({ count }) => count <= length)
  const hashes = messageHashesOf(prompt)
  return records.toSorted((a, b) => b.count - a.count).find(({ count, hash }) => hashes.at(count) === hash)
}

async function remember(memory: ConversationMemory, job: RecordedJob, record: SentRecord): Promise<void> {
  const [entry] = entriesOf(job)
  if (entry === undefined) return
  const others = parseRecords(await memory.recall(job.owner, entry)).filter(({ hash }) => hash !== record.hash)
  const records = [record, ...others].slice(0, MAX_RECORDS_PER_ENTRY)
  await memory.remember(job.owner, entry, JSON.stringify(records))
}

/** Counts what was recorded as this gateway counts, so that it can be compared with the received prompt. */
export function historyOf(record: SentRecord, prompt: Prompt, meter: Pick<Meter, 'estimatePrompt'>): History {
  const estimate = (count: number): number =>
    meter.estimatePrompt({ ...prompt, messages: prompt.messages.slice(0, count) })
  const toSent = ({ count, at, ttlMs }: SentPrefix): Omit<SentPrefix, 'count'> & { readonly tokens: number } => ({
    tokens: count === 0 ? 0 : estimate(count),
    at,
    ...(ttlMs !== undefined && { ttlMs }),
  })
  const { last, whole, rewritten, debt, trust } = record
  const ratio = whole.tokens === undefined ? 0 : whole.tokens / Math.max(1, estimate(whole.count))
  return {
    ...toSent(last),
    whole: toSent(whole),
    rewritten,
    debt,
    trust,
    ...(ratio > 0 && { vendorRatio: ratio }),
  }
}

/** Assumes that another process has just sent the conversation up to its last response. */
export function historyElsewhere({ prompt: { messages }, tokens, now }: TierJob, newTokens: number): History {
  const isContinued = messages.some(({ role }) => role === 'assistant')
  if (!isContinued) return NEW_CONVERSATION
  const sent = { tokens: Math.max(0, tokens - newTokens), at: now }
  return { ...NEW_CONVERSATION, ...sent, whole: sent }
}

/** A rewritten prompt. */
export interface SentRewrite {
  readonly tier: TierNumber
  /** True if a header requested the tier. */
  readonly isRequested: boolean
  readonly tokens: number
  /** Tokens that the next turn repeats. */
  readonly stableTokens: number
  readonly cacheable: Cacheable | undefined
}

interface RecordedRequest {
  readonly job: RecordedJob
  readonly earlier: SentRecord | undefined
  /** Present if the caller marked a prefix of the received prompt. */
  readonly marked: MarkedPrefix | undefined
  /** Absent for a prompt that was sent unchanged. */
  readonly rewrite?: SentRewrite | undefined
  /** Cost of this request minus its cost with unchanged prompts. */
  readonly addedDebt: NanoUsd
  /** Tokens that the vendor was expected to read from its cache, as in `warmTokens`. */
  readonly expectedRead: number
}

export async function rememberSent(
  memory: ConversationMemory,
  { job, earlier, marked, rewrite, addedDebt, expectedRead }: RecordedRequest,
  report: SentReport | undefined,
): Promise<void> {
  const { prompt, now: at } = job
  const { length: count } = prompt.messages
  const last: SentPrefix = { at, count, ...marked }
  const { trust = FULL_TRUST, debt = NO_DEBT, whole = NEVER, rewritten = NEVER_REWRITTEN } = earlier ?? {}
  await remember(memory, job, {
    count,
    hash: messageHashesOf(prompt).at(count),
    last,
    whole: rewrite === undefined ? { ...last, ...cachedSize(report, marked) } : whole,
    rewritten: rewrite === undefined ? rewritten : toRewritten(rewrite, at),
    debt: add(debt, addedDebt),
    trust: correctedTrust(trust, expectedRead, report?.usage?.cacheReadTokens),
  })
}

function cachedSize(report: SentReport | undefined, marked: MarkedPrefix | undefined): Pick<SentPrefix, 'tokens'> {
  if (report === undefined) return {}
  const { promptTokens: size, usage } = report
  if (marked === undefined || usage === undefined || promptTokens(usage) === 0) return { tokens: size }
  return { tokens: usage.cacheReadTokens + usage.cacheWriteTokens + usage.cacheWrite1hTokens }
}

function toRewritten({ tier, isRequested, stableTokens, cacheable }: SentRewrite, at: number): History['rewritten'] {
  return { tier, isRequested, ...toSentPrompt(stableTokens, at, cacheable) }
}

/** Returns the cost of sending a rewritten prompt, minus the cost of sending everything on every turn. */
export function addedDebtOf(
  job: TierJob,
  history: History,
  sent: { readonly tokens: number; readonly cachedTokens: number; readonly cacheable: Cacheable | undefined },
  { whole, spent }: { readonly whole: Cacheable | undefined; readonly spent: NanoUsd },
): NanoUsd {
  const cost = add(sendingCost(job.model, sent.tokens, sent.cachedTokens, sent.cacheable), spent)
  return subtract(cost, sendingCost(job.model, job.tokens, warmTokens(history, job, history), whole))
}

const NEWEST_WEIGHT = 0.5
/** Minimum fraction that counts as a full read, because upstreams cache only complete blocks. */
const FULL_READ_SHARE = 0.9
/** Above 0, because no read is expected, and so none is compared, without any trust. */
const MIN_TRUST = 0.01

function correctedTrust(trust: number, expectedRead: number, read: number | undefined): number {
  if (expectedRead <= 0 || read === undefined) return trust
  // `expectedRead` was already multiplied by the trust.
  const expected = expectedRead / trust
  const share = read >= expected * FULL_READ_SHARE ? 1 : read / expected
  return Math.max(MIN_TRUST, (1 - NEWEST_WEIGHT) * trust + NEWEST_WEIGHT * share)
}

/** The part of an unchanged prompt that the vendor is expected to have cached, in the vendor's tokens. */
export function expectedReadOf(record: SentRecord, job: RecordedJob): number {
  return warmTokens({ ...record.whole, tokens: record.whole.tokens ?? 0 }, job, record)
}

function parseRecords(text: string | undefined): readonly SentRecord[] {
  if (text === undefined) return []
  return asArray(parseJson(text)).flatMap((value) => parseRecord(value) ?? [])
}

function parseRecord(value: Json): SentRecord | undefined {
  const { count, hash, last, whole, rewritten, debt, trust } = asObject(value) ?? {}
  const [lastPrefix, wholePrefix, lastRewritten] = [parsePrefix(last), parsePrefix(whole), parseSent(rewritten)]
  if (lastPrefix === undefined || wholePrefix === undefined || lastRewritten === undefined) return undefined
  if (typeof count !== 'number' || typeof hash !== 'string') return undefined
  if (typeof debt !== 'number' || typeof trust !== 'number') return undefined
  const isRequested = asObject(rewritten)?.['isRequested'] === true
  return {
    count,
    hash,
    last: lastPrefix,
    whole: wholePrefix,
    rewritten: { ...lastRewritten, tier: tierOf(rewritten), isRequested },
    debt: toNanoUsd(debt),
    trust: Math.min(1, Math.max(MIN_TRUST, trust)),
  }
}

function parsePrefix(value: Json | undefined): SentPrefix | undefined {
  const { count, tokens } = asObject(value) ?? {}
  const sent = parseSentAt(value)
  if (sent === undefined || asCount(count) === undefined) return undefined
  return { ...sent, count: asCount(count) ?? 0, ...(typeof tokens === 'number' && { tokens }) }
}

function tierOf(value: Json | undefined): TierNumber | 0 {
  const tier = asObject(value)?.['tier']
  return tier === 2 || tier === 3 || tier === 4 || tier === 5 ? tier : 0
}
