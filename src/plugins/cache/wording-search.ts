import type { Cancellation, MaybePromise } from '../../core/async.ts'
import type { Neighbor } from '../../core/cache.ts'
import type { NanoUsd } from '../../core/money.ts'
import type { CacheKey } from './cacheability.ts'
import type { VerifierModel } from './cache-options.ts'
import { canonicalize, type Canonical } from './canonical.ts'
import { mayBeTypo } from './typos.ts'

/** `form` and `vector` are computed on first use. */
export interface Lookup {
  readonly key: CacheKey
  readonly keyId: string
  readonly modelName: string
  readonly threshold: number
  readonly cancellation: Cancellation | undefined
  readonly smallModel: () => VerifierModel | undefined
  /** Returns true if another message may ask for work on the text. Called only if there is a candidate. @default false */
  readonly hasTextTask?: () => boolean
  spent: NanoUsd
  form: Canonical | undefined
  vector: Float32Array | undefined
}

export interface CandidateSearch {
  bytesOf(text: string): number
  find(lookup: Lookup, limit: number): MaybePromise<readonly Neighbor[]>
  add(lookup: Lookup, expiresAt: number): MaybePromise<void>
  remove(scope: string, id: string): MaybePromise<void>
  clear(): MaybePromise<void>
}

const TYPO_COST = 0.01
const MAX_TYPOS = 2
/** In UTF-16 code units. Canonicalizing all pending questions at once would block the event loop. */
const MAX_CANONICALIZED_PER_LOOKUP = 4096
/** A shorter question counts as this long. */
const MIN_COUNTED_LENGTH = 64

/** The canonical form is not stored, because few questions are compared and it can be computed from the text. */
interface Wording {
  readonly id: string
  readonly words: readonly string[]
  readonly key: string
}

interface Wordings {
  readonly byId: Map<string, Wording>
  readonly byKey: Map<string, Set<Wording>>
  readonly byWord: Map<string, Set<Wording>>
  /** Plain words by first letter and length. A typo changes the length by at most 1, and the first letter only by a swap. */
  readonly byShape: Map<string, Set<string>>
}

interface Scope {
  /** The first question, until it is canonicalized. Avoids a map in a scope with one question. */
  firstQuestion: { readonly id: string; readonly text: string } | undefined
  pending: Map<string, string> | undefined
  wordings: Wordings | undefined
}

/** The guard requires every content word in order, so candidates can be found by their words, without vectors. */
export function createWordingSearch(): CandidateSearch {
  const scopes = new Map<string, Scope>()
  return {
    // Includes the sets and strings of the words.
    bytesOf: (text) => 512 + text.length * 40,
    find: (lookup, limit) => {
      const scope = scopes.get(lookup.key.scope)
      if (scope === undefined) return []
      const form = (lookup.form ??= canonicalize(lookup.key.text))
      const wordings = (scope.wordings ??= createWordings())
      canonicalizePending(scope, wordings)
      return findMatches(wordings, form, limit)
    },
    add: ({ key: { scope: name, id, text }, form }) => {
      const existing = scopes.get(name)
      const scope: Scope = existing ?? { firstQuestion: undefined, pending: undefined, wordings: undefined }
      if (existing === undefined) scopes.set(name, scope)
      else forget(scope, id)
      if (form !== undefined) insert((scope.wordings ??= createWordings()), id, form)
      else if (existing === undefined) scope.firstQuestion = { id, text }
      else (scope.pending ??= new Map<string, string>()).set(id, text)
    },
    remove: (name, id) => {
      const scope = scopes.get(name)
      if (scope === undefined) return
      forget(scope, id)
      if (isEmpty(scope)) scopes.delete(name)
    },
    clear: () => scopes.clear(),
  }
}

function createWordings(): Wordings {
  return { byId: new Map(), byKey: new Map(), byWord: new Map(), byShape: new Map() }
}

function isEmpty({ firstQuestion, pending, wordings }: Scope): boolean {
  return firstQuestion === undefined && (pending?.size ?? 0) + (wordings?.byId.size ?? 0) === 0
}

function canonicalizePending(scope: Scope, wordings: Wordings): void {
  const { firstQuestion, pending } = scope
  if (firstQuestion !== undefined) insert(wordings, firstQuestion.id, canonicalize(firstQuestion.text))
  scope.firstQuestion = undefined
  if (pending === undefined) return
  let length = 0
  for (const [id, text] of pending) {
    if (length >= MAX_CANONICALIZED_PER_LOOKUP) return
    length += Math.max(MIN_COUNTED_LENGTH, text.length)
    pending.delete(id)
    insert(wordings, id, canonicalize(text))
  }
}

function insert(wordings: Wordings, id: string, form: Canonical): void {
  const words = wordsOf(form)
  const wording: Wording = { id, words, key: words.join(' ') }
  wordings.byId.set(id, wording)
  addToSet(wordings.byKey, wording.key, wording)
  for (const word of words) {
    if (addToSet(wordings.byWord, word, wording) && isPlain(word)) addToSet(wordings.byShape, shapeOf(word, 0), word)
  }
}

function forget(scope: Scope, id: string): void {
  const { pending, wordings } = scope
  if (scope.firstQuestion?.id === id) scope.firstQuestion = undefined
  pending?.delete(id)
  const wording = wordings?.byId.get(id)
  if (wordings === undefined || wording === undefined) return
  wordings.byId.delete(id)
  removeFromSet(wordings.byKey, wording.key, wording)
  for (const word of wording.words) {
    if (removeFromSet(wordings.byWord, word, wording) && isPlain(word))
      removeFromSet(wordings.byShape, shapeOf(word, 0), word)
  }
}

/** Returns the words in lower case, because the guard ignores case at the beginning of a question. */
function wordsOf(form: Canonical): readonly string[] {
  return form.items.map((item) => item.key.toLowerCase())
}

/** Each match contains the rarest word or a word one typo away from it, so other questions are not compared. */
function findMatches(wordings: Wordings, form: Canonical, limit: number): readonly Neighbor[] {
  const words = wordsOf(form)
  const equal = wordings.byKey.get(words.join(' ')) ?? new Set()
  const matches = Array.from(equal, ({ id }): Neighbor => ({ id, similarity: 1 })).slice(0, limit)
  const rarest = form.language === 'none' || matches.length >= limit ? undefined : rarestOf(wordings, words)
  if (rarest === undefined) return matches
  const known = new Set(equal)
  for (const word of [rarest, ...neighborsOf(wordings, rarest)]) {
    for (const wording of wordings.byWord.get(word) ?? []) {
      const typos = known.has(wording) ? undefined : typosBetween(wording.words, words)
      if (typos === undefined) continue
      known.add(wording)
      matches.push({ id: wording.id, similarity: 1 - TYPO_COST * typos })
      if (matches.length >= limit) return matches
    }
  }
  return matches
}

function rarestOf(wordings: Wordings, words: readonly string[]): string | undefined {
  let rarest: string | undefined
  let fewest = Number.POSITIVE_INFINITY
  for (const word of words) {
    const count = wordings.byWord.get(word)?.size ?? 0
    if (count >= fewest) continue
    rarest = word
    fewest = count
  }
  return rarest
}

function neighborsOf(wordings: Wordings, word: string): readonly string[] {
  if (!isPlain(word)) return []
  const neighbors: string[] = []
  const shapes = [shapeOf(word, -1), shapeOf(word, 0), shapeOf(word, 1)]
  // The first two letters may be swapped.
  if (word.charAt(0) !== word.charAt(1)) shapes.push(shapeOf(word.slice(1), 1))
  for (const shape of shapes) {
    for (const other of wordings.byShape.get(shape) ?? []) if (mayBeTypo(word, other)) neighbors.push(other)
  }
  return neighbors
}

function typosBetween(left: readonly string[], right: readonly string[]): number | undefined {
  if (left.length !== right.length) return undefined
  let typos = 0
  for (let index = 0; index < left.length; index += 1) {
    const [leftWord = '', rightWord = ''] = [left[index], right[index]]
    if (leftWord === rightWord) continue
    typos += 1
    if (typos > MAX_TYPOS || !mayBeTypo(leftWord, rightWord)) return undefined
  }
  return typos
}

function shapeOf(word: string, change: number): string {
  return `${word.charAt(0)}${word.length + change}`
}

function isPlain(word: string): boolean {
  return word.length >= 3 && /^[a-z]+(?:'s)?$/.test(word)
}

function addToSet<T>(sets: Map<string, Set<T>>, key: string, value: T): boolean {
  const set = sets.get(key)
  if (set === undefined) sets.set(key, new Set([value]))
  else set.add(value)
  return set === undefined
}

function removeFromSet<T>(sets: Map<string, Set<T>>, key: string, value: T): boolean {
  const set = sets.get(key)
  if (set === undefined || !set.delete(value) || set.size > 0) return false
  sets.delete(key)
  return true
}
