import type { Completion } from '../core/answer.ts'
import type { CachedAnswer } from './answer-store.ts'
import type { CacheParts } from './cache-parts.ts'
import type { Candidate, Lookup } from './candidate-search.ts'
import { canonicalize } from './canonical.ts'
import { differenceOf } from './guard.ts'
import type { Lexicon } from './lexicon.ts'
import { countRefusal } from './statistics.ts'
import { isPending, whenReady, withTimeout } from './timeout.ts'

/** Maximum number of candidates that the guard compares: the best accepted one need not be the nearest. */
const MAX_CANDIDATES = 16
/** Number of long texts that are compared between two pauses. */
const COMPARED_AT_ONCE = 4
const LONG_TEXT = 1000
/** From this similarity on two typos are forgiven, below it one. */
const NEAR = 0.95

export interface CacheHit {
  readonly hit: true
  /** The argument of `reportWrongHit`. */
  readonly id: string
  readonly completion: Completion
  /** Tokens of the prompt that was answered, before any tier made it smaller. */
  readonly promptTokens: number
  /** 1 for the same text. */
  readonly similarity: number
  /** Milliseconds since 1970. */
  readonly storedAt: number
}

type Found = CacheHit | undefined

/**
 * Returns the stored answer to the same text, or the best one to a text that asks the same. Returns a promise only
 * where a part must wait; throws or rejects when a part fails.
 */
export function findAnswer(parts: CacheParts, lookup: Lookup): Found | Promise<Found> {
  const { key, threshold } = lookup
  return whenReady(findEntry(parts, lookup, key.id), (same) => {
    if (same !== undefined) return hitOf(same, 1)
    if (!key.comparable || threshold >= 1) return undefined
    return whenReady(parts.search.find(lookup, MAX_CANDIDATES), (candidates) => {
      if (candidates.length === 0) return undefined
      return whenReady(parts.lexicon(), (lexicon) => firstAccepted({ parts, lookup, candidates, lexicon }, 0))
    })
  })
}

interface Comparison {
  readonly parts: CacheParts
  readonly lookup: Lookup
  readonly candidates: readonly Candidate[]
  readonly lexicon: Lexicon
}

function firstAccepted(comparison: Comparison, from: number): Found | Promise<Found> {
  const { parts, lookup, candidates } = comparison
  const isLong = lookup.key.text.length >= LONG_TEXT
  for (let at = from; at < candidates.length; at += 1) {
    if (isLong && at >= from + COMPARED_AT_ONCE) return parts.pause().then(() => firstAccepted(comparison, at))
    const candidate = candidates[at]
    const judged = candidate === undefined ? undefined : judge(comparison, candidate)
    if (isPending(judged)) return judged.then((hit) => hit ?? firstAccepted(comparison, at + 1))
    if (judged !== undefined) return judged
  }
  return undefined
}

function judge(comparison: Comparison, candidate: Candidate): Found | Promise<Found> {
  const { parts, lookup } = comparison
  return whenReady(findEntry(parts, lookup, candidate.id), (entry) => {
    if (entry === undefined || !entry.comparable) return undefined
    const similarity = acceptedSimilarity(comparison, candidate, entry)
    return similarity === undefined ? undefined : verified(parts, lookup, { entry, similarity })
  })
}

/** The similarity is computed after the guard, because few candidates pass the guard and a vector costs more. */
function acceptedSimilarity(
  { parts, lookup, lexicon }: Comparison,
  candidate: Candidate,
  entry: CachedAnswer,
): number | undefined {
  const query = (lookup.form ??= canonicalize(lookup.key.text))
  const form = candidate.form(entry.text)
  const accept = (typos: number): boolean => {
    const difference = differenceOf(query, form, { lexicon, typos })
    if (difference !== undefined) countRefusal(parts.tallies, difference)
    return difference === undefined
  }
  if (!accept(2)) return undefined
  const similarity = Math.min(1, candidate.similarity())
  if (similarity < Math.max(lookup.threshold, entry.threshold ?? 0)) return undefined
  return similarity >= NEAR || accept(1) ? similarity : undefined
}

interface Accepted {
  readonly entry: CachedAnswer
  readonly similarity: number
}

function verified(parts: CacheParts, lookup: Lookup, { entry, similarity }: Accepted): Found | Promise<Found> {
  const { verifyHit } = parts.options
  if (verifyHit === undefined) return served(parts, { entry, similarity })
  const query = { text: lookup.key.text, keyId: lookup.keyId, modelName: lookup.modelName }
  const agrees = bounded(parts, lookup, () => verifyHit(query, entry))
  return whenReady(agrees, (agreed) => {
    if (agreed === true) return served(parts, { entry, similarity })
    countRefusal(parts.tallies, 'verifier')
    return undefined
  })
}

function served(parts: CacheParts, { entry, similarity }: Accepted): CacheHit | Promise<CacheHit> {
  const hit = hitOf(entry, similarity)
  if (similarity <= (entry.servedAt ?? 0)) return hit
  return whenReady(parts.store.amend(entry.id, { servedAt: similarity }), () => hit)
}

/** Returns a live entry of the scope of this question, whatever an index names. */
function findEntry(
  parts: CacheParts,
  lookup: Lookup,
  id: string,
): CachedAnswer | undefined | Promise<CachedAnswer | undefined> {
  const got = bounded(parts, lookup, () => parts.store.get(id))
  return whenReady(got, (entry) => {
    if (entry === undefined || entry.scope !== lookup.key.scope || entry.id !== id) return undefined
    if (entry.expiresAt > parts.options.runtime.now()) return entry
    return whenReady(parts.store.remove(id), () => undefined)
  })
}

function bounded<T>(parts: CacheParts, { signal }: Lookup, work: () => T | Promise<T>): T | Promise<T> {
  const { runtime } = parts.options
  const timeout = { ms: parts.timeoutMs, after: runtime.after, ...(signal !== undefined && { signal }) }
  return withTimeout(timeout, work, { needsSignal: false })
}

function hitOf(entry: CachedAnswer, similarity: number): CacheHit {
  const { id, completion, promptTokens, storedAt } = entry
  return { hit: true, id, completion, promptTokens, similarity, storedAt }
}
