import type { Embedder } from '../core/cache-ports.ts'
import { canonicalize, textToEmbed } from './canonical.ts'

/** Hashes UTF-16 code units to 32 bits (FNV-1a with a final mix). The result is the same on every platform. */
export function hash32(text: string, seed: number): number {
  let hash = (0x811c9dc5 ^ seed) >>> 0
  for (let index = 0; index < text.length; index += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193)
  }
  return mix(hash)
}

/** The finalizer of MurmurHash3: each input bit affects all output bits. */
function mix(value: number): number {
  let hash = value
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return (hash ^ (hash >>> 16)) >>> 0
}

const DIMENSIONS = 1024

/**
 * Weight of each feature type, as a share of the squared norm. Letters tolerate typos. Words, word pairs and
 * character n-grams distinguish texts with the same letters.
 */
const SHARES = { letters: 0.9, ngrams: 0.06, words: 0.02, pairs: 0.02 } as const

const MIN_NGRAM = 3
const MAX_NGRAM = 5
/** Maximum number of embedded characters. Only the start and the end of a longer text are embedded. */
const MAX_LENGTH = 16_384

const OFFLINE_EMBEDDER: Embedder = {
  name: 'hashing-1024',
  dimensions: DIMENSIONS,
  embed: (texts) => texts.map(hashEmbedding),
}

/**
 * Returns an embedder that needs neither a network nor a model. It hashes features of the canonical text into 1024
 * dimensions. Texts with nearly the same words have similar vectors, but synonyms do not. A text has the same vector on
 * every platform.
 */
export function hashingEmbedder(): Embedder {
  return OFFLINE_EMBEDDER
}

export function hashEmbedding(text: string): Float32Array {
  return embedText(textToEmbed(canonicalize(shorten(text))))
}

function shorten(text: string): string {
  const half = MAX_LENGTH / 2
  return text.length <= MAX_LENGTH ? text : `${text.slice(0, half)} ${text.slice(-half)}`
}

function embedText(text: string): Float32Array {
  const words = text.split(' ').filter((word) => word !== '')
  const pairs = words.slice(1).map((word, index) => `${words[index] ?? ''} ${word}`)
  const sum = new Float64Array(DIMENSIONS)
  addFeatures(sum, words, lettersOf, SHARES.letters)
  addFeatures(sum, words, ngramsOf, SHARES.ngrams)
  addFeatures(sum, words, (word) => [hash32(word, 3)], SHARES.words)
  addFeatures(sum, pairs, (pair) => [hash32(pair, 4)], SHARES.pairs)
  const norm = normOf(sum)
  return norm === 0 ? new Float32Array(DIMENSIONS) : Float32Array.from(sum, (value) => value / norm)
}

/**
 * Counts each letter once, combined with the first letter of its word. Swapping or doubling later
 * letters has no effect, and a wrong letter has a small effect.
 */
function lettersOf(word: string): readonly number[] {
  const first = word.charCodeAt(0)
  const letters = new Set<number>()
  for (let index = 0; index < word.length; index += 1) letters.add(word.charCodeAt(index))
  return Array.from(letters, (letter) => mix((first << 16) ^ letter ^ 0x1e77e125))
}

function ngramsOf(word: string): readonly number[] {
  const marked = `^${word}$`
  const ngrams: number[] = []
  for (let length = MIN_NGRAM; length <= MAX_NGRAM; length += 1) {
    for (let start = 0; start + length <= marked.length; start += 1) {
      ngrams.push(hash32(marked.slice(start, start + length), 2))
    }
  }
  return ngrams
}

/**
 * Adds one feature type. The weight of each feature is the square root of its number of occurrences, with a sign
 * derived from its hash.
 */
function addFeatures(
  sum: Float64Array,
  words: readonly string[],
  featuresOf: (word: string) => readonly number[],
  share: number,
): void {
  const counts = new Map<number, number>()
  for (const word of words) {
    for (const feature of featuresOf(word)) counts.set(feature, (counts.get(feature) ?? 0) + 1)
  }
  const typeSum = new Float64Array(DIMENSIONS)
  for (const [feature, count] of counts) {
    const dimension = feature % DIMENSIONS
    const sign = feature >>> 31 === 0 ? 1 : -1
    typeSum[dimension] = (typeSum[dimension] ?? 0) + sign * Math.sqrt(count)
  }
  const norm = normOf(typeSum)
  if (norm === 0) return
  const scale = Math.sqrt(share) / norm
  for (let index = 0; index < DIMENSIONS; index += 1) {
    sum[index] = (sum[index] ?? 0) + (typeSum[index] ?? 0) * scale
  }
}

function normOf(vector: Float64Array): number {
  let squares = 0
  for (const value of vector) squares += value * value
  return Math.sqrt(squares)
}

export const SIGNATURE_WORDS = 32
const BITS = SIGNATURE_WORDS * 32
const ROUNDS = 3
/**
 * Number of standard deviations above the mean number of differing bits at which a vector is skipped. The probability
 * of skipping a near vector is about 10^-10.
 */
const DEVIATIONS = 6.5
/** Tolerance in bits. Prevents rounding errors from rejecting equal vectors. */
const SLACK_BITS = 2

/** Writes the signs of a vector's projections onto 1024 fixed random directions. */
export type Signer = (vector: Float32Array, signature: Uint32Array) => void

/**
 * Creates a signer. Near vectors have similar signatures: the probability that a bit differs is angle / π. The
 * directions are those of a randomized Hadamard transform, so a signature takes about 30,000 additions instead of a
 * million multiplications.
 */
export function createSigner(dimensions: number): Signer {
  const size = Math.max(BITS, 2 ** Math.ceil(Math.log2(dimensions)))
  const signs = Float32Array.from({ length: size * ROUNDS }, (_, index) => ((mix(index + 1) & 1) === 0 ? 1 : -1))
  const work = new Float32Array(size)
  return (vector, signature) => {
    work.fill(0)
    work.set(vector.subarray(0, dimensions))
    for (let round = 0; round < ROUNDS; round += 1) {
      for (let index = 0; index < size; index += 1) {
        work[index] = (work[index] ?? 0) * (signs[round * size + index] ?? 1)
      }
      hadamard(work)
    }
    for (let word = 0; word < SIGNATURE_WORDS; word += 1) signature[word] = signsFrom(work, word * 32)
  }
}

function signsFrom(work: Float32Array, from: number): number {
  let bits = 0
  for (let bit = 0; bit < 32; bit += 1) bits |= ((work[from + bit] ?? 0) >= 0 ? 1 : 0) << bit
  return bits >>> 0
}

function hadamard(values: Float32Array): void {
  for (let half = 1; half < values.length; half *= 2) {
    for (let start = 0; start < values.length; start += half * 2) {
      for (let index = start; index < start + half; index += 1) {
        const [a, b] = [values[index] ?? 0, values[index + half] ?? 0]
        values[index] = a + b
        values[index + half] = a - b
      }
    }
  }
}

/** Returns how many bits may differ in the first `words` signature words of two vectors with at least this cosine. */
export function maxDifferentBits(minSimilarity: number, words: number): number {
  const bits = words * 32
  const probability = Math.acos(Math.min(1, Math.max(-1, minSimilarity))) / Math.PI
  return Math.min(
    bits,
    Math.ceil(bits * probability + DEVIATIONS * Math.sqrt(bits * probability * (1 - probability))) + SLACK_BITS,
  )
}

export function countOnes(value: number): number {
  let bits = value - ((value >>> 1) & 0x55555555)
  bits = (bits & 0x33333333) + ((bits >>> 2) & 0x33333333)
  return Math.imul((bits + (bits >>> 4)) & 0x0f0f0f0f, 0x01010101) >>> 24
}
