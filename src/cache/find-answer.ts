import type { Completion } from '../core/answer.ts'
import type { Neighbour } from '../core/ports.ts'
import type { Prompt } from '../core/prompt.ts'
import type { Parts } from './cache-parts.ts'
import { canonicalise, type Canonical } from './canonical.ts'
import { differenceOf } from './guard.ts'
import { withPatience, type Patience } from './patience.ts'
import type { Place } from './scope.ts'
import type { CachedAnswer } from './shelf.ts'
import { countRefusal } from './statistics.ts'
import type { CacheWishes } from './wishes.ts'

/** Candidates that the guard looks at: the best one that passes answers, which need not be the nearest. */
const CANDIDATES = 16
/** So many long texts are compared between two pauses. */
const AT_ONCE = 4
/** Above this similarity two slips of the finger are forgiven, below it one. */
const NEAR = 0.95

export interface CacheQuestion {
  /** With the model's default settings applied: they count as parameters. */
  readonly prompt: Prompt
  readonly keyId: string
  /** The requested model as the caller wrote it. */
  readonly modelName: string
  /** @default no wishes */
  readonly wishes?: CacheWishes
  readonly signal?: AbortSignal
}

export interface CacheHit {
  readonly hit: true
  /** For `reportWrongHit`. */
  readonly id: string
  readonly completion: Completion
  /** Tokens of the prompt that was answered, before any tier made it smaller. */
  readonly promptTokens: number
  /** 1 for the same text. */
  readonly similarity: number
  /** Milliseconds since 1970. */
  readonly storedAt: number
}

/** A question on its way through the cache. */
export interface Asked extends CacheQuestion {
  readonly place: Place
  readonly threshold: number
  /** Computed when it is needed first. */
  vector: Float32Array | undefined
}

/** The stored answer to the same text, or the best one to a text that asks the same. Rejects when a part fails. */
export async function findAnswer(parts: Parts, asked: Asked): Promise<CacheHit | undefined> {
  const { place, threshold } = asked
  const same = await alive(parts, place.id, place.scope)
  if (same !== undefined) return hitOf(same, 1)
  if (!place.comparable || threshold >= 1 || !(await parts.shelf.hasComparable(place.scope))) return undefined
  const vector = await vectorOf(parts, asked)
  const neighbours = await withPatience(patienceOf(parts, asked.signal), () =>
    parts.index.nearest(place.scope, vector, { least: threshold, limit: CANDIDATES }),
  )
  return bestOf(parts, asked, neighbours)
}

async function bestOf(parts: Parts, asked: Asked, neighbours: readonly Neighbour[]): Promise<CacheHit | undefined> {
  const lexicon = await parts.lexicon()
  const query = canonicalise(asked.place.text)
  for (const [place, { id, similarity }] of neighbours.entries()) {
    if (place % AT_ONCE === AT_ONCE - 1) await parts.pause()
    if (!(similarity >= asked.threshold)) continue
    const entry = await alive(parts, id, asked.place.scope)
    if (entry === undefined || !entry.comparable || similarity < (entry.threshold ?? 0)) continue
    const difference = differenceOf(query, formOf(parts, entry.text), { lexicon, slips: similarity >= NEAR ? 2 : 1 })
    if (difference === undefined) return verified(parts, asked, entry, Math.min(1, similarity))
    countRefusal(parts.tallies, difference)
  }
  return undefined
}

function formOf(parts: Parts, text: string): Canonical {
  const known = parts.forms.get(text)
  if (known !== undefined) return known
  const form = canonicalise(text)
  parts.forms.set(text, form)
  return form
}

async function verified(
  parts: Parts,
  asked: Asked,
  entry: CachedAnswer,
  similarity: number,
): Promise<CacheHit | undefined> {
  const { verifyHit } = parts.options
  if (verifyHit !== undefined) {
    const query = { text: asked.place.text, keyId: asked.keyId, modelName: asked.modelName }
    const agrees = await withPatience(patienceOf(parts, asked.signal), async () => verifyHit(query, entry))
    if (agrees !== true) {
      countRefusal(parts.tallies, 'verifier')
      return undefined
    }
  }
  if (similarity > (entry.servedAt ?? 0)) await parts.shelf.amend(entry.id, { servedAt: similarity })
  return hitOf(entry, similarity)
}

/** A stored answer that may be given in this scope: whatever an index says, it is never one of another scope. */
async function alive(parts: Parts, id: string, scope: string): Promise<CachedAnswer | undefined> {
  const entry = await parts.shelf.get(id)
  if (entry === undefined || entry.scope !== scope || entry.id !== id) return undefined
  if (entry.expiresAt > parts.options.runtime.now()) return entry
  await parts.shelf.remove(id)
  return undefined
}

function hitOf(entry: CachedAnswer, similarity: number): CacheHit {
  const { id, completion, promptTokens, storedAt } = entry
  return { hit: true, id, completion, promptTokens, similarity, storedAt }
}

/** So many failures of the embedder in a row, and it is left alone for a while: a dead one must not delay each request. */
const FAILURES = 3
const REST_MS = 10_000

/** The question's vector with length 1. Rejects for one that is no direction: other dimensions, NaN, nothing but zeros. */
export async function vectorOf(parts: Parts, asked: Asked): Promise<Float32Array> {
  if (asked.vector !== undefined) return asked.vector
  const { embedderHealth, options } = parts
  if (options.runtime.now() < embedderHealth.restsUntil) throw new Error('the embedder rests after its failures')
  try {
    asked.vector = await embed(parts, asked)
    embedderHealth.failures = 0
    return asked.vector
  } catch (error) {
    if (asked.signal?.aborted !== true) embedderHealth.failures += 1
    if (embedderHealth.failures >= FAILURES) embedderHealth.restsUntil = options.runtime.now() + REST_MS
    throw error
  }
}

async function embed(parts: Parts, asked: Asked): Promise<Float32Array> {
  const { embedder } = parts
  const [given] = await withPatience(patienceOf(parts, asked.signal), (signal) =>
    embedder.embed([asked.place.text], signal),
  )
  if (given === undefined || given.length !== embedder.dimensions) throw new Error('the embedding has other dimensions')
  const length = Math.sqrt(given.reduce((sum, value) => sum + value * value, 0))
  if (!Number.isFinite(length) || length === 0) throw new Error('the embedding is no direction')
  return given.map((value) => value / length)
}

function patienceOf(parts: Parts, signal: AbortSignal | undefined): Patience {
  const { timeoutMs = 1000, runtime } = parts.options
  return { ms: timeoutMs, after: runtime.after, ...(signal === undefined ? {} : { signal }) }
}
