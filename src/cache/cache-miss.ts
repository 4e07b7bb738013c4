import type { Completion } from '../core/answer.ts'
import type { AnswerClaims, CachedAnswer, StreamValues } from '../core/cache.ts'
import { type Cancellation, chain, isPromise, type MaybePromise } from '../core/async.ts'
import { asArray, asObject } from '../core/json.ts'
import { ZERO, type NanoUsd } from '../core/money.ts'
import type { Runtime } from '../core/ports.ts'
import type { Part } from '../core/prompt.ts'
import { throwIfCanceled } from './answer-store.ts'
import type { CacheDirectives } from './cache-options.ts'
import { attempt, findIdentical, type CacheHit, type CacheContext } from './find-answer.ts'
import type { Lookup } from './wording-search.ts'

export interface CacheMiss {
  readonly hit: false
  /** Cost of the verifier. */
  readonly spent: NanoUsd
  /** Absent if the request cannot share an answer with identical requests. */
  readonly id?: string | undefined
  /** Returns false if the answer is not stored. Never rejects. */
  store(completion: Completion, promptTokens: number): MaybePromise<boolean>
  countAsHit(): void
  readonly claim?: AnswerClaim | undefined
}

/** Lets other processes wait for the answer instead of computing it too. */
export interface AnswerClaim {
  /** Resolves with undefined if this process must compute the answer. Rejects only if the request is canceled. */
  join<Stream>(findStream?: FindStream<Stream>): Promise<CacheHit | FoundStream<Stream> | undefined>
  /** Must be called once the answer is stored or cannot be stored. Never rejects. */
  release(): Promise<void>
  readonly id: string
  readonly streamStore: StreamValues | undefined
  isOwned(): boolean
}

type FindStream<Stream> = () => Promise<Stream | undefined>

interface FoundStream<Stream> {
  readonly stream: Stream
}

export const UNCACHEABLE: CacheMiss = { hit: false, spent: ZERO, store: () => false, countAsHit: () => {} }

export function createMiss(context: CacheContext, lookup: Lookup, directives: CacheDirectives): CacheMiss {
  const { tallies, writes } = context
  const isShareable = directives.allowsRead && directives.allowsWrite
  let isCounted = directives.allowsRead
  return {
    hit: false,
    spent: lookup.spent,
    id: isShareable ? lookup.key.id : undefined,
    claim: isShareable ? createClaim(context, lookup) : undefined,
    store: (completion, promptTokens) => {
      if (!directives.allowsWrite || !isStorable(completion)) return false
      const stored = attempt(tallies, () => storeAnswer(context, lookup, { completion, promptTokens }), false)
      if (!isPromise(stored)) return stored
      writes.add(stored)
      return stored.finally(() => writes.delete(stored))
    },
    countAsHit: () => {
      if (!isCounted) return
      isCounted = false
      tallies.misses -= 1
      tallies.hits += 1
    },
  }
}

type NewAnswer = Pick<CachedAnswer, 'completion' | 'promptTokens'>

/** If the question cannot be indexed, only identical text finds the answer. */
function storeAnswer(context: CacheContext, lookup: Lookup, answer: NewAnswer): MaybePromise<boolean> {
  const { ttlSeconds = 3600, freshTtlSeconds = 60, runtime } = context.options
  const { id, scope, text } = lookup.key
  const needsFreshAnswer = isTimeSensitive(text) || isTimeSensitive(lookup.key.previousText)
  const seconds = needsFreshAnswer ? Math.min(freshTtlSeconds, ttlSeconds) : ttlSeconds
  const storedAt = runtime.now()
  const expiresAt = storedAt + 1000 * seconds
  const comparable = lookup.key.comparable && context.threshold < 1
  const entry: CachedAnswer = { id, scope, text, keyId: lookup.keyId, ...answer, storedAt, expiresAt, comparable }
  return chain(context.store.put(entry), (isStored) => {
    if (!isStored || !comparable) return isStored
    // Indexing continues after the caller disconnects, because the answer is complete.
    const uncanceledLookup = { ...lookup, cancellation: undefined }
    const indexed = attempt(context.tallies, () => context.search.add(uncanceledLookup, expiresAt), undefined)
    return chain(indexed, () => true)
  })
}

const REFUSAL =
  /^(?:i(?:'|’)?m sorry,? (?:but )?i (?:can|won|am not|cannot)|i(?:'|’)?m (?:unable|not able) to|sorry, (?:but )?i (?:can|won)|i (?:cannot|can(?:'|’)t|won(?:'|’)t|will not) (?:help|assist|provide|comply|do that|create|write|answer|fulfill)|as an ai(?: language model)?,? i (?:can|am not|do not))/i
const MAX_REFUSAL_LENGTH = 600

export function isStorable(completion: Completion): boolean {
  if (completion.finish !== 'stop' && completion.finish !== 'stop-sequence') return false
  if (!completion.parts.every(isReplayable)) return false
  const text = completion.parts
    .map((part) => (part.type === 'text' ? part.text : ''))
    .join('')
    .trim()
  return text !== '' && !isRefusal(completion, text)
}

/** Citations are lost if an answer is replayed in a different form, such as a stream. */
function isReplayable(part: Part): boolean {
  const { citations, annotations } = part.native?.value ?? {}
  return (
    (part.type === 'text' || part.type === 'thinking') &&
    ![citations, annotations].some((list) => asArray(list).length > 0)
  )
}

function isRefusal(completion: Completion, text: string): boolean {
  if (completion.parts.some((part) => part.native?.value['type'] === 'refusal')) return true
  const hasRefusal = asArray(completion.native?.value['choices']).some((choice) => {
    const refusal = asObject(asObject(choice)?.['message'])?.['refusal']
    return typeof refusal === 'string' && refusal !== ''
  })
  return hasRefusal || (text.length <= MAX_REFUSAL_LENGTH && REFUSAL.test(text))
}

/** A false match only shortens the lifetime of an entry. */
const LATIN_WORDS = [
  'today|tonight|tomorrow|yesterday|now|nowadays|current|currently|latest|newest|recent|recently|upcoming|weather|forecast|news',
  'stock price|share price|bitcoin|exchange rate|the score|last night|happening|these days|is it (?:raining|snowing)',
  'what (?:day|date) is|(?:what|which) year is (?:it|this)|next (?:bus|train|flight|game|match)',
  'at the moment|so far|what time|time is it|(?:this|next|last) (?:morning|week|weekend|month|quarter|year)',
  'heute|gestern|morgen|jetzt|aktuell(?:e[mnrs]?)?|derzeit|gerade|wie spät|neueste[nrs]?|wetter|nachrichten|uhrzeit',
  "aujourd['’]hui|hier|demain|maintenant|actuel|actuelle|actuellement|derni(?:er|ère)s?|récente?s?|quelle heure|météo",
  'hoy|ayer|mañana|ahora|actual|actualmente|últim[oa]s?|recientes?|qué hora|noticias|hoje|ontem|amanhã|agora|atual|atualmente|recentes?|que horas|notícias',
  'oggi|ieri|domani|adesso|ora|attuale|ultim[aeio]|notizie|che or[ae]|vandaag|gisteren|nu|laatste|hoe laat|nieuws|dzisiaj|teraz|bugün|şimdi|idag|nyheter',
].join('|')
const NON_LATIN_WORDS =
  'сегодня|вчера|завтра|сейчас|последн|текущ|новост|недавн|нынешн|который час|今天|今日|昨天|明天|现在|現在|最新|目前|今の|最近|今年|今何時|几点|幾點|新闻|新聞|ニュース|오늘|지금|현재|최신|최근|올해|몇 시|اليوم|الآن|الأخير|أخبار|كم الساعة|आज|अभी'
const TIME_SENSITIVE = new RegExp(`(?<!\\p{L})(?:${LATIN_WORDS})(?!\\p{L})|${NON_LATIN_WORDS}`, 'iu')

const SEARCHED_LENGTH = 2000

export function isTimeSensitive(text: string): boolean {
  const isLong = text.length > SEARCHED_LENGTH * 2
  return TIME_SENSITIVE.test(isLong ? `${text.slice(0, SEARCHED_LENGTH)} ${text.slice(-SEARCHED_LENGTH)}` : text)
}

const CLAIM_MS = 30_000
const MIN_POLL_MS = 25
const MAX_POLL_MS = 500

function createClaim(context: CacheContext, lookup: Lookup): AnswerClaim | undefined {
  const { claims } = context.store
  if (claims === undefined) return undefined
  const { cancellation, key } = lookup
  let isOwned = false
  return {
    id: key.id,
    streamStore: claims.values,
    isOwned: () => isOwned,
    join: async (findStream) => {
      try {
        isOwned = await claims.acquire(key.id, CLAIM_MS)
        return isOwned ? undefined : await waitForOtherProcess(context, lookup, { claims, findStream })
      } catch {
        throwIfCanceled(cancellation)
        return undefined
      }
    },
    release: async () => {
      if (!isOwned) return
      isOwned = false
      // Without a release, the claim expires.
      await claims.release(key.id).catch(() => {})
    },
  }
}

async function waitForOtherProcess<Stream>(
  context: CacheContext,
  lookup: Lookup,
  { claims, findStream }: { readonly claims: AnswerClaims; readonly findStream: FindStream<Stream> | undefined },
): Promise<CacheHit | FoundStream<Stream> | undefined> {
  const { runtime } = context.options
  const { cancellation, key } = lookup
  const deadline = runtime.now() + CLAIM_MS
  for (let ms = MIN_POLL_MS; runtime.now() < deadline; ms = Math.min(2 * ms, MAX_POLL_MS)) {
    await sleep(ms, runtime, cancellation)
    throwIfCanceled(cancellation)
    if (!(await claims.isHeld(key.id))) {
      return attempt(context.tallies, () => findIdentical(context, lookup), undefined, cancellation)
    }
    const stream = await findStream?.()
    if (stream !== undefined) return { stream }
  }
  return undefined
}

function sleep(ms: number, { after }: Pick<Runtime, 'after'>, cancellation: Cancellation | undefined): Promise<void> {
  return new Promise((resolve) => {
    let unsubscribe: (() => void) | undefined
    const done = (): void => {
      cancel()
      unsubscribe?.()
      resolve()
    }
    const cancel = after(ms, done)
    unsubscribe = cancellation?.onCancel(done)
  })
}
