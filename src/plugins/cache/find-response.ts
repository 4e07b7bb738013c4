import type { Completion } from '../../core/completion.ts'
import { type Cancellation, chain, isPromise, type MaybePromise } from '../../core/async.ts'
import type { ResponseClaims, ResponseStore, CachedResponse, Neighbor, StreamValues } from '../../core/cache.ts'
import { add, type NanoUsd } from '../../core/money.ts'
import type { Runtime } from '../../core/ports.ts'
import { runAbortable, runWithTimeout, throwIfCanceled, type Timeout } from './response-store.ts'
import type { SemanticCacheOptions, Verdict } from './cache-options.ts'
import { canonicalize } from './canonical.ts'
import { findDifference, hasSameFacts, type Difference } from './guard.ts'
import { englishLexicon, type Lexicon } from './typos.ts'
import type { CandidateSearch, Lookup } from './wording-search.ts'

export interface CacheContext {
  readonly options: SemanticCacheOptions
  readonly threshold: number
  readonly timeoutMs: number
  readonly store: ResponseStore
  readonly search: CandidateSearch
  readonly tallies: CacheTallies
  readonly writes: Set<Promise<unknown>>
  readonly pause: () => Promise<void>
}

export interface CacheTallies {
  hits: number
  misses: number
  exactHits: number
  failures: number
  readonly rejections: Partial<Record<Difference | 'verifier', number>>
}

const MAX_CANDIDATES = 16
const COMPARED_PER_SLICE = 4
const MIN_LONG_TEXT_LENGTH = 1000
const MIN_SIMILARITY_FOR_TWO_TYPOS = 0.95

export interface CacheHit {
  readonly hit: true
  /** Entry id, which `reportWrongHit` accepts. */
  readonly id: string
  readonly completion: Completion
  readonly promptTokens: number
  readonly similarity: number
  readonly storedAt: number
  /** Cost of the verifier. @default 0 */
  readonly spent?: NanoUsd
}

type LookupResult = CacheHit | undefined

/** Returns a promise only if a component does, the text is long, or the English lexicon is not loaded yet. */
export function findResponse(context: CacheContext, lookup: Lookup): MaybePromise<LookupResult> {
  return chain(findIdentical(context, lookup), (same) => {
    if (same !== undefined) return same
    if (!lookup.key.comparable || lookup.threshold >= 1) return undefined
    return chain(context.search.find(lookup, MAX_CANDIDATES), (candidates) =>
      candidates.length === 0 ? undefined : findEquivalent(context, lookup, candidates),
    )
  })
}

export function findIdentical(context: CacheContext, lookup: Lookup): MaybePromise<LookupResult> {
  return chain(findEntry(context, lookup, lookup.key.id), (same) => same && hitOf(same, 1))
}

function findEquivalent(
  context: CacheContext,
  lookup: Lookup,
  candidates: readonly Neighbor[],
): MaybePromise<LookupResult> {
  if (lookup.hasTextTask?.() === true) return undefined
  return chain(englishLexicon(), (lexicon) => {
    const comparison: Comparison = { context, lookup, candidates, lexicon, paraphrase: undefined }
    return chain(findAccepted(comparison, 0), (accepted) => {
      const best = accepted ?? comparison.paraphrase
      return best && verify(context, lookup, best)
    })
  })
}

interface Comparison {
  readonly context: CacheContext
  readonly lookup: Lookup
  readonly candidates: readonly Neighbor[]
  readonly lexicon: Lexicon
  paraphrase: AcceptedCandidate | undefined
}

interface AcceptedCandidate {
  readonly entry: CachedResponse
  readonly similarity: number
}

function findAccepted(comparison: Comparison, from: number): MaybePromise<AcceptedCandidate | undefined> {
  const { context, lookup, candidates } = comparison
  const isLong = lookup.key.text.length >= MIN_LONG_TEXT_LENGTH
  for (let index = from; index < candidates.length; index += 1) {
    if (isLong && index >= from + COMPARED_PER_SLICE) return context.pause().then(() => findAccepted(comparison, index))
    const candidate = candidates[index]
    if (candidate === undefined) continue
    const accepted = chain(findEntry(context, lookup, candidate.id), (entry) => compare(comparison, candidate, entry))
    if (isPromise(accepted)) return accepted.then((result) => result ?? findAccepted(comparison, index + 1))
    if (accepted !== undefined) return accepted
  }
  return undefined
}

function compare(
  comparison: Comparison,
  candidate: Neighbor,
  entry: CachedResponse | undefined,
): AcceptedCandidate | undefined {
  const { context, lookup, lexicon } = comparison
  if (entry?.comparable !== true) return undefined
  const similarity = Math.min(1, candidate.similarity)
  if (similarity < Math.max(lookup.threshold, entry.threshold ?? 0)) return undefined
  const query = (lookup.form ??= canonicalize(lookup.key.text))
  const form = canonicalize(entry.text)
  const difference = findDifference(query, form, {
    lexicon,
    maxTypos: similarity >= MIN_SIMILARITY_FOR_TWO_TYPOS ? 2 : 1,
  })
  if (difference === undefined) return { entry, similarity }
  countRejection(context.tallies, difference)
  const isWordingOnly = difference === 'word' || difference === 'order' || difference === 'question-word'
  if (isWordingOnly && context.options.verifyHit?.judgesWording === true && hasSameFacts(query, form)) {
    comparison.paraphrase ??= { entry, similarity }
  }
  return undefined
}

function verify(context: CacheContext, lookup: Lookup, accepted: AcceptedCandidate): MaybePromise<LookupResult> {
  const { verifyHit } = context.options
  if (verifyHit === undefined) return recordHit(context, accepted)
  const { key, keyId, modelName, smallModel } = lookup
  const query = { text: key.text, keyId, modelName }
  const verdict = runAbortable<boolean | Verdict>(timeoutOf(context, lookup), (signal) =>
    verifyHit(query, accepted.entry, { smallModel, signal }),
  )
  return chain(verdict, (result) => {
    if (typeof result === 'object') lookup.spent = add(lookup.spent, result.spent)
    if (result === true || (typeof result === 'object' && result.agrees === true)) return recordHit(context, accepted)
    countRejection(context.tallies, 'verifier')
    return undefined
  })
}

function recordHit({ tallies, store }: CacheContext, { entry, similarity }: AcceptedCandidate): CacheHit {
  if (similarity > (entry.maxHitSimilarity ?? 0)) {
    void attempt(tallies, () => store.amend(entry.id, { maxHitSimilarity: similarity }), undefined)
  }
  return hitOf(entry, similarity)
}

/** An index may return entries of other scopes. */
function findEntry(context: CacheContext, lookup: Lookup, id: string): MaybePromise<CachedResponse | undefined> {
  const stored = runWithTimeout(timeoutOf(context, lookup), () => context.store.get(id))
  return chain(stored, (entry) => {
    if (entry === undefined || entry.scope !== lookup.key.scope || entry.id !== id) return undefined
    if (entry.expiresAt > context.options.runtime.now()) return entry
    return chain(context.store.remove(id), () => undefined)
  })
}

function timeoutOf({ options, timeoutMs }: CacheContext, { cancellation }: Lookup): Timeout {
  return { ms: timeoutMs, after: options.runtime.after, cancellation }
}

function hitOf(entry: CachedResponse, similarity: number): CacheHit {
  const { id, completion, promptTokens, storedAt } = entry
  return { hit: true, id, completion, promptTokens, similarity, storedAt }
}

function countRejection({ rejections }: CacheTallies, reason: Difference | 'verifier'): void {
  rejections[reason] = (rejections[reason] ?? 0) + 1
}

export function attempt<T>(
  tallies: CacheTallies,
  work: () => MaybePromise<T>,
  fallback: T,
  cancellation?: Cancellation,
): MaybePromise<T> {
  const countFailure = (): T => {
    tallies.failures += cancellation?.isCanceled === true ? 0 : 1
    return fallback
  }
  try {
    const result = work()
    return isPromise(result) ? result.then(undefined, countFailure) : result
  } catch {
    return countFailure()
  }
}

/** Lets other processes wait for the response instead of computing it too. */
export interface ResponseClaim {
  /** Resolves with undefined if this process must compute the response. Rejects only if the request is canceled. */
  join<Stream>(findStream?: FindStream<Stream>): Promise<CacheHit | FoundStream<Stream> | undefined>
  /** Must be called once the response is stored or cannot be stored. Never rejects. */
  release(): Promise<void>
  readonly id: string
  readonly streamStore: StreamValues | undefined
  isOwned(): boolean
}

type FindStream<Stream> = () => Promise<Stream | undefined>

interface FoundStream<Stream> {
  readonly stream: Stream
}

const CLAIM_MS = 30_000
const MIN_POLL_MS = 25
const MAX_POLL_MS = 500

export function createClaim(context: CacheContext, lookup: Lookup): ResponseClaim | undefined {
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
  { claims, findStream }: { readonly claims: ResponseClaims; readonly findStream: FindStream<Stream> | undefined },
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
