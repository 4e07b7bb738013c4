import type { Completion } from '../core/answer.ts'
import { add, type NanoUsd } from '../core/money.ts'
import type { CachedAnswer } from '../core/cache-ports.ts'
import type { CacheParts } from './cache-parts.ts'
import type { CacheCandidate, Lookup } from './candidate-search.ts'
import { canonicalize } from './canonical.ts'
import { differenceOf, hasSameFacts } from './guard.ts'
import type { Lexicon } from './lexicon.ts'
import { countRefusal } from './statistics.ts'
import { isPending, whenReady, withDeadline, withTimeout } from './timeout.ts'
import type { Verdict } from './verifier.ts'

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
  /** What a verifier cost; it counts in the actual cost of the request. @default 0 */
  readonly spent?: NanoUsd
}

type Found = CacheHit | undefined

/**
 * Returns the stored answer to the same text, or the best one to a text that asks the same. Returns a promise only
 * where a part must wait; throws or rejects when a part fails.
 */
export function findAnswer(parts: CacheParts, lookup: Lookup): Found | Promise<Found> {
  const { key, threshold } = lookup
  return whenReady(findSame(parts, lookup), (same) => {
    if (same !== undefined) return same
    if (!key.comparable || threshold >= 1) return undefined
    return whenReady(parts.search.find(lookup, MAX_CANDIDATES), (candidates) => {
      if (candidates.length === 0) return undefined
      return whenReady(parts.lexicon(), (lexicon) =>
        bestOf({ parts, lookup, candidates, lexicon, paraphrase: undefined }),
      )
    })
  })
}

/** Returns the stored answer to the same text. */
export function findSame(parts: CacheParts, lookup: Lookup): Found | Promise<Found> {
  return whenReady(findEntry(parts, lookup, lookup.key.id), (same) => (same === undefined ? undefined : hitOf(same, 1)))
}

interface Comparison {
  readonly parts: CacheParts
  readonly lookup: Lookup
  readonly candidates: readonly CacheCandidate[]
  readonly lexicon: Lexicon
  /** The nearest candidate that the guard refused for its wording alone, where a verifier judges wording. */
  paraphrase: Accepted | undefined
}

interface Accepted {
  readonly entry: CachedAnswer
  readonly similarity: number
}

/** Returns the first candidate that the guard accepts, or else the nearest paraphrase. A verifier has the last word. */
function bestOf(comparison: Comparison): Found | Promise<Found> {
  const { parts, lookup } = comparison
  return whenReady(firstAccepted(comparison, 0), (accepted) => {
    const best = accepted ?? comparison.paraphrase
    return best === undefined ? undefined : verified(parts, lookup, best)
  })
}

function firstAccepted(comparison: Comparison, from: number): Accepted | undefined | Promise<Accepted | undefined> {
  const { parts, lookup, candidates } = comparison
  const isLong = lookup.key.text.length >= LONG_TEXT
  for (let at = from; at < candidates.length; at += 1) {
    if (isLong && at >= from + COMPARED_AT_ONCE) return parts.pause().then(() => firstAccepted(comparison, at))
    const candidate = candidates[at]
    const judged = candidate === undefined ? undefined : judge(comparison, candidate)
    if (isPending(judged)) return judged.then((accepted) => accepted ?? firstAccepted(comparison, at + 1))
    if (judged !== undefined) return judged
  }
  return undefined
}

function judge(
  comparison: Comparison,
  candidate: CacheCandidate,
): Accepted | undefined | Promise<Accepted | undefined> {
  const { parts, lookup } = comparison
  return whenReady(findEntry(parts, lookup, candidate.id), (entry) =>
    entry?.comparable === true ? compare(comparison, candidate, entry) : undefined,
  )
}

function compare(comparison: Comparison, candidate: CacheCandidate, entry: CachedAnswer): Accepted | undefined {
  const { parts, lookup, lexicon } = comparison
  const similarity = Math.min(1, candidate.similarity())
  if (similarity < Math.max(lookup.threshold, entry.threshold ?? 0)) return undefined
  const query = (lookup.form ??= canonicalize(lookup.key.text))
  const form = candidate.form(entry.text)
  const difference = differenceOf(query, form, { lexicon, typos: similarity >= NEAR ? 2 : 1 })
  if (difference === undefined) return { entry, similarity }
  countRefusal(parts.tallies, difference)
  const isWording = difference === 'word' || difference === 'order' || difference === 'question-word'
  if (isWording && parts.options.verifyHit?.judgesWording === true && hasSameFacts(query, form)) {
    comparison.paraphrase ??= { entry, similarity }
  }
  return undefined
}

function verified(parts: CacheParts, lookup: Lookup, accepted: Accepted): Found | Promise<Found> {
  const { verifyHit, runtime } = parts.options
  if (verifyHit === undefined) return served(parts, accepted)
  const { key, keyId, modelName, smallModel, cancellation } = lookup
  const query = { text: key.text, keyId, modelName }
  const timeout = { ms: parts.timeoutMs, after: runtime.after, cancellation }
  const verdict = withTimeout<boolean | Verdict>(timeout, (ending) =>
    verifyHit(query, accepted.entry, { smallModel, signal: ending }),
  )
  return whenReady(verdict, (given) => {
    if (typeof given === 'object') lookup.spent = add(lookup.spent, given.spent)
    if (given === true || (typeof given === 'object' && given.agrees === true)) return served(parts, accepted)
    countRefusal(parts.tallies, 'verifier')
    return undefined
  })
}

function served(parts: CacheParts, { entry, similarity }: Accepted): CacheHit {
  const hit = hitOf(entry, similarity)
  if (similarity <= (entry.servedAt ?? 0)) return hit
  const failed = (): void => void (parts.tallies.failures += 1)
  try {
    const amended = parts.store.amend(entry.id, { servedAt: similarity })
    // The caller does not wait for it.
    if (isPending(amended)) amended.catch(failed)
  } catch {
    failed()
  }
  return hit
}

/** Returns an entry that lives and has the scope of this question, although an index may name others. */
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

function bounded<T>(parts: CacheParts, { cancellation }: Lookup, work: () => T | Promise<T>): T | Promise<T> {
  const { runtime } = parts.options
  const timeout = { ms: parts.timeoutMs, after: runtime.after, cancellation }
  return withDeadline(timeout, work)
}

function hitOf(entry: CachedAnswer, similarity: number): CacheHit {
  const { id, completion, promptTokens, storedAt } = entry
  return { hit: true, id, completion, promptTokens, similarity, storedAt }
}
