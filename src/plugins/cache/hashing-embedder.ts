import type { Embedder } from '../../core/cache.ts'
import { canonicalize, textToEmbed } from './canonical.ts'
import { hash32, mix } from './typos.ts'

const DIMENSIONS = 1024

/** Shares of the squared norm. Letters tolerate typos. The others distinguish texts with the same letters. */
const SHARES = { letters: 0.9, ngrams: 0.06, words: 0.02, pairs: 0.02 } as const

const MIN_NGRAM = 3

const MAX_NGRAM = 5

const MAX_LENGTH = 16_384

const OFFLINE_EMBEDDER: Embedder = {
  name: 'hashing-1024',
  dimensions: DIMENSIONS,
  embed: (texts) => texts.map(hashEmbedding),
}

/** Needs neither a network nor a model. A text has the same vector on every platform. */
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

/** Combines each letter with the first of its word, so swapping or doubling later letters has no effect. */
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

export function normOf(vector: Float32Array | Float64Array): number {
  let squares = 0
  for (const value of vector) squares += value * value
  return Math.sqrt(squares)
}
