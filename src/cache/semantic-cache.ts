import type { Completion } from '../core/answer.ts'
import { checkCacheOptions, type SemanticCacheOptions } from './cache-options.ts'
import { partsOf, type Parts } from './cache-parts.ts'
import { findAnswer, vectorOf, type Asked, type CacheHit, type CacheQuestion } from './find-answer.ts'
import { asksAboutNow } from './freshness.ts'
import { placeOf } from './scope.ts'
import { emptyTallies, statisticsOf, type CacheStatistics, type Tallies } from './statistics.ts'
import type { CachedAnswer } from './shelf.ts'
import { isStorable } from './storable.ts'
import { NO_WISHES, type CacheWishes } from './wishes.ts'

export interface CacheMiss {
  readonly hit: false
  /** Equal for requests that ask exactly the same, so that one of them may ask for all; absent where nothing is kept. */
  readonly id?: string
  /** Keeps a whole answer of status 200 and the size of its prompt; says whether it did. Never rejects. */
  save(completion: Completion, promptTokens: number): Promise<boolean>
  /** Call when another request's flight answered this one: it then counts as a hit. */
  becameHit(): void
}

/** Tier 1. No method rejects: what fails inside is a miss. */
export interface SemanticCache {
  lookup(question: CacheQuestion): Promise<CacheHit | CacheMiss>
  /**
   * What `lookup` would find, without a trace in the cache or its statistics. An embedder or a verifier of the operator's
   * own is not asked, because that may cost: then only the same text is found.
   */
  peek(question: CacheQuestion): Promise<CacheHit | CacheMiss>
  /** Raises the entry's own threshold above the similarity of its hits until now; an entry that answered only its own text goes. */
  reportWrongHit(id: string): Promise<void>
  /** Empties the cache, or forgets what one key's requests stored. */
  clear(which?: { readonly key?: string }): Promise<void>
  stats(): CacheStatistics
}

/** Added to the similarity of hits that were reported as wrong. */
const STEP = 0.001

/** Throws `invalid-request` naming the option that is wrong. */
export function createSemanticCache(options: SemanticCacheOptions): SemanticCache {
  checkCacheOptions(options)
  const parts = partsOf(options)
  return {
    lookup: (question) => lookup(parts, question),
    peek: (question) => lookup(withoutTraces(parts), question),
    reportWrongHit: (id) => quietly(parts, () => raise(parts, id)),
    clear: (which = {}) => quietly(parts, () => clear(parts, which.key)),
    stats: () => statisticsOf(parts.tallies, parts.shelf.size()),
  }
}

async function lookup(parts: Parts, question: CacheQuestion): Promise<CacheHit | CacheMiss> {
  const { options, tallies } = parts
  const wishes = question.wishes ?? NO_WISHES
  if (options.enabled === false || (!wishes.read && !wishes.write)) return NOTHING_KEPT
  const owner = options.scope === 'global' ? 'global' : `key ${question.keyId}`
  const place = await placeOf(question.prompt, { owner, modelName: question.modelName }).catch(() => failed(tallies))
  if (place === undefined) return NOTHING_KEPT
  const asked: Asked = { ...question, place, vector: undefined, threshold: thresholdFor(parts, wishes) }
  const found = wishes.read ? await find(parts, asked) : undefined
  if (found !== undefined) {
    tallies.hits += 1
    tallies.exactHits += found.similarity === 1 && found.id === place.id ? 1 : 0
    return found
  }
  if (wishes.read) tallies.misses += 1
  return missOf(parts, asked, wishes)
}

function withoutTraces(parts: Parts): Parts {
  const { shelf, options } = parts
  const isFree = options.embedder === undefined && options.verifyHit === undefined
  return {
    ...parts,
    threshold: isFree ? parts.threshold : 1,
    tallies: emptyTallies(),
    embedderHealth: { failures: 0, restsUntil: 0 },
    shelf: {
      get: (id) => (shelf.peek === undefined ? shelf.get(id) : shelf.peek(id)),
      put: () => Promise.resolve(false),
      amend: () => Promise.resolve(),
      remove: () => Promise.resolve(),
      hasComparable: (scope) => shelf.hasComparable(scope),
      clear: () => Promise.resolve(),
      size: () => shelf.size(),
    },
  }
}

const NOTHING_KEPT: CacheMiss = { hit: false, save: () => Promise.resolve(false), becameHit: () => {} }

function failed(tallies: Tallies): undefined {
  tallies.failures += 1
  return undefined
}

async function find(parts: Parts, asked: Asked): Promise<CacheHit | undefined> {
  try {
    return await findAnswer(parts, asked)
  } catch {
    // A caller who has left is no fault of a part.
    return asked.signal?.aborted === true ? undefined : failed(parts.tallies)
  }
}

/** A caller may only be stricter than the operator. */
function thresholdFor(parts: Parts, wishes: CacheWishes): number {
  return Math.max(parts.threshold, Math.min(1, wishes.threshold ?? 0))
}

function missOf(parts: Parts, asked: Asked, wishes: CacheWishes): CacheMiss {
  let counted = wishes.read
  return {
    hit: false,
    ...(wishes.read && wishes.write ? { id: asked.place.id } : {}),
    save: (completion, promptTokens) =>
      wishes.write ? save(parts, asked, { completion, promptTokens }) : Promise.resolve(false),
    becameHit: () => {
      if (!counted) return
      counted = false
      parts.tallies.misses -= 1
      parts.tallies.hits += 1
    },
  }
}

type Answered = Pick<CachedAnswer, 'completion' | 'promptTokens'>

async function save(parts: Parts, asked: Asked, answered: Answered): Promise<boolean> {
  if (!isStorable(answered.completion)) return false
  try {
    return await store(parts, asked, answered)
  } catch {
    parts.tallies.failures += 1
    return false
  }
}

/** Without a vector an answer is still found by the same text. */
async function store(parts: Parts, asked: Asked, answered: Answered): Promise<boolean> {
  const { id, scope, text } = asked.place
  const { ttlSeconds = 3600, freshTtlSeconds = 60, runtime } = parts.options
  const vector = await vectorToKeep(parts, asked)
  const storedAt = runtime.now()
  const ttl = asksAboutNow(text) ? Math.min(freshTtlSeconds, ttlSeconds) : ttlSeconds
  const expiresAt = storedAt + ttl * 1000
  const comparable = vector !== undefined
  const kept = await parts.shelf.put({
    id,
    scope,
    text,
    keyId: asked.keyId,
    ...answered,
    storedAt,
    expiresAt,
    comparable,
  })
  if (kept && vector !== undefined) await parts.index.add({ id, scope, vector, expiresAt })
  return kept
}

async function vectorToKeep(parts: Parts, asked: Asked): Promise<Float32Array | undefined> {
  if (!asked.place.comparable || parts.threshold >= 1) return undefined
  // An answer that came whole is kept, also when its caller has left in the meantime.
  const { signal: _, ...rest } = asked
  return vectorOf(parts, rest).catch(() => failed(parts.tallies))
}

async function raise(parts: Parts, id: string): Promise<void> {
  const entry = await parts.shelf.get(id)
  if (entry === undefined) return
  const { servedAt = 0 } = entry
  if (servedAt === 0) await parts.shelf.remove(id)
  else await parts.shelf.amend(id, { threshold: servedAt + STEP, servedAt: 0 })
}

async function clear(parts: Parts, keyId: string | undefined): Promise<void> {
  await parts.shelf.clear(keyId)
  parts.forms.clear()
  if (keyId === undefined) await parts.index.clear()
}

async function quietly(parts: Parts, work: () => Promise<void>): Promise<void> {
  try {
    await work()
  } catch {
    parts.tallies.failures += 1
  }
}
