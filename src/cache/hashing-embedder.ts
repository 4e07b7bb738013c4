import type { Embedder } from '../core/cache-ports.ts'
import { canonicalize, meaningOf } from './canonical.ts'
import { hash32, mix } from './hashing.ts'

const DIMENSIONS = 1024

/**
 * Weight of each kind of feature, as a share of the squared length. Letters tolerate typos. Words, pairs of words and
 * pieces of words distinguish texts that use the same letters.
 */
const SHARES = { letters: 0.9, pieces: 0.06, words: 0.02, pairs: 0.02 } as const

const MIN_PIECE = 3
const MAX_PIECE = 5
/** Of a longer text the head and the tail are embedded, so that the cost is bounded. */
const MAX_LENGTH = 16_384

const OFFLINE: Embedder = {
  name: 'hashing-1024',
  dimensions: DIMENSIONS,
  embed: (texts) => texts.map(hashEmbedding),
}

/**
 * Embeds texts without a network or a model, by hashing features of their canonical form into 1024 dimensions. It finds
 * texts that are written nearly alike, not synonyms. The same text has the same vector on every platform.
 */
export function hashingEmbedder(): Embedder {
  return OFFLINE
}

/** Returns the vector of one text, of length 1; the zero vector for a text without words. */
export function hashEmbedding(text: string): Float32Array {
  return embedMeaning(meaningOf(canonicalize(shortened(text))))
}

function shortened(text: string): string {
  const half = MAX_LENGTH / 2
  return text.length <= MAX_LENGTH ? text : `${text.slice(0, half)} ${text.slice(-half)}`
}

function embedMeaning(meaning: string): Float32Array {
  const words = meaning.split(' ').filter((word) => word !== '')
  const pairs = words.slice(1).map((word, index) => `${words[index] ?? ''} ${word}`)
  const sum = new Float64Array(DIMENSIONS)
  addFamily(sum, words, lettersOf, SHARES.letters)
  addFamily(sum, words, piecesOf, SHARES.pieces)
  addFamily(sum, words, (word) => [hash32(word, 3)], SHARES.words)
  addFamily(sum, pairs, (pair) => [hash32(pair, 4)], SHARES.pairs)
  const length = lengthOf(sum)
  return length === 0 ? new Float32Array(DIMENSIONS) : Float32Array.from(sum, (value) => value / length)
}

/** Counts each letter once, with the first of its word: swapped or doubled letters change nothing, a wrong one little. */
function lettersOf(word: string): readonly number[] {
  const first = word.charCodeAt(0)
  const letters = new Set<number>()
  for (let index = 0; index < word.length; index += 1) letters.add(word.charCodeAt(index))
  return Array.from(letters, (letter) => mix((first << 16) ^ letter ^ 0x1e77e125))
}

function piecesOf(word: string): readonly number[] {
  const marked = `^${word}$`
  const pieces: number[] = []
  for (let length = MIN_PIECE; length <= MAX_PIECE; length += 1) {
    for (let start = 0; start + length <= marked.length; start += 1) {
      pieces.push(hash32(marked.slice(start, start + length), 2))
    }
  }
  return pieces
}

/** Adds one kind of feature. Each counts by the square root of its number of occurrences, with a sign of its own. */
function addFamily(
  sum: Float64Array,
  words: readonly string[],
  featuresOf: (word: string) => readonly number[],
  share: number,
): void {
  const counts = new Map<number, number>()
  for (const word of words) {
    for (const feature of featuresOf(word)) counts.set(feature, (counts.get(feature) ?? 0) + 1)
  }
  const family = new Float64Array(DIMENSIONS)
  for (const [feature, count] of counts) {
    const dimension = feature % DIMENSIONS
    const sign = feature >>> 31 === 0 ? 1 : -1
    family[dimension] = (family[dimension] ?? 0) + sign * Math.sqrt(count)
  }
  const length = lengthOf(family)
  if (length === 0) return
  const scale = Math.sqrt(share) / length
  for (let index = 0; index < DIMENSIONS; index += 1) {
    sum[index] = (sum[index] ?? 0) + (family[index] ?? 0) * scale
  }
}

function lengthOf(vector: Float64Array): number {
  let squares = 0
  for (const value of vector) squares += value * value
  return Math.sqrt(squares)
}
