import { monitorEventLoopDelay } from 'node:perf_hooks'
import { createFlatIndex } from '../../src/plugins/cache/flat-index.ts'
import { hashEmbedding } from '../../src/plugins/cache/hashing-embedder.ts'
import type { VectorIndex } from '../../src/core/cache.ts'
import { seeded } from './variations.ts'

const DIMENSIONS = 1024

/** Milliseconds. */
export interface Times {
  readonly p50: number
  readonly p99: number
}

export interface LookupFigures {
  readonly entries: number
  readonly threshold: number
  readonly hit: Times
  readonly miss: Times
  /** A plain loop over one Float32Array with all vectors, in the same run. */
  readonly scan: Times
  /** Rounds whose best match equals that of the scan. */
  readonly exact: number
  readonly rounds: number
  readonly bytesPerEntry: number
  /** Longest block of the event loop during searches, in milliseconds. */
  readonly longestBlock: number
}

const ROUNDS = 100

/** Measures searches among `entries` questions of one scope. */
export async function timeLookups(entries: number, threshold: number): Promise<LookupFigures> {
  const random = seeded(11)
  const vocabulary = Array.from({ length: 20_000 }, () => wordOf(random))
  const texts = Array.from({ length: entries }, () => questionOf(random, vocabulary))
  const slab = new Float32Array(entries * DIMENSIONS)
  texts.forEach((text, place) => slab.set(hashEmbedding(text), place * DIMENSIONS))
  const before = memory()
  const index = createFlatIndex({ now: () => 0, pause, dimensions: DIMENSIONS, maxEntries: entries, maxBytes: 2 ** 40 })
  for (const [place, text] of texts.entries()) {
    const vector = slab.slice(place * DIMENSIONS, (place + 1) * DIMENSIONS)
    await index.add({ id: String(place), scope: 'one', vector, expiresAt: 1 })
    if (text === '') throw new Error('A generated question is empty.')
  }
  const bytesPerEntry = (memory() - before) / entries
  return {
    entries,
    threshold,
    bytesPerEntry,
    rounds: ROUNDS,
    ...(await measureSearches(index, slab, texts, { random, threshold, vocabulary })),
  }
}

interface Setting {
  readonly random: () => number
  readonly threshold: number
  readonly vocabulary: readonly string[]
}

async function measureSearches(
  index: VectorIndex,
  slab: Float32Array,
  texts: readonly string[],
  { random, threshold, vocabulary }: Setting,
): Promise<Pick<LookupFigures, 'hit' | 'miss' | 'scan' | 'exact' | 'longestBlock'>> {
  const hits: number[] = []
  const misses: number[] = []
  const scans: number[] = []
  let exact = 0
  const options = { minSimilarity: threshold, limit: 16 }
  for (let round = 0; round < ROUNDS + 10; round += 1) {
    const text = texts[Math.floor(random() * texts.length)] ?? ''
    const known = hashEmbedding(`${text} please`.replace('What', 'Waht'))
    const unknown = hashEmbedding(questionOf(random, vocabulary))
    let start = performance.now()
    const [best] = await index.nearest('one', known, options)
    const hit = performance.now() - start
    start = performance.now()
    await index.nearest('one', unknown, options)
    const miss = performance.now() - start
    start = performance.now()
    const expected = scanAll(slab, known)
    const scan = performance.now() - start
    // The first rounds are a warm-up.
    if (round < 10) continue
    hits.push(hit)
    misses.push(miss)
    scans.push(scan)
    const found =
      best === undefined ? expected.similarity < threshold : Math.abs(best.similarity - expected.similarity) < 1e-5
    exact += found ? 1 : 0
  }
  return {
    hit: timesOf(hits),
    miss: timesOf(misses),
    scan: timesOf(scans),
    exact,
    longestBlock: await longestBlock(index, texts, options),
  }
}

/** Runs searches only, because the plain scan blocks the event loop as well. */
async function longestBlock(
  index: VectorIndex,
  texts: readonly string[],
  options: { readonly minSimilarity: number; readonly limit: number },
): Promise<number> {
  const vectors = texts.slice(0, 50).map(hashEmbedding)
  const delay = monitorEventLoopDelay({ resolution: 1 })
  delay.enable()
  for (const vector of vectors) {
    await index.nearest('one', vector, options)
    await pause()
  }
  delay.disable()
  return delay.max / 1e6
}

function scanAll(slab: Float32Array, vector: Float32Array): { readonly place: number; readonly similarity: number } {
  let place = -1
  let similarity = -2
  for (let start = 0, entry = 0; start < slab.length; start += DIMENSIONS, entry += 1) {
    let sum = 0
    for (let index = 0; index < DIMENSIONS; index += 1) sum += (slab[start + index] ?? 0) * (vector[index] ?? 0)
    if (sum > similarity) {
      similarity = sum
      place = entry
    }
  }
  return { place, similarity }
}

function timesOf(values: readonly number[]): Times {
  const sorted = values.toSorted((one, other) => one - other)
  const at = (share: number): number => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0
  return { p50: at(0.5), p99: at(0.99) }
}

function pause(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve))
}

function memory(): number {
  globalThis.gc?.()
  const { heapUsed, arrayBuffers } = process.memoryUsage()
  return heapUsed + arrayBuffers
}

function wordOf(random: () => number): string {
  const length = 3 + Math.floor(random() * 8)
  return Array.from({ length }, () => String.fromCharCode(97 + Math.floor(random() * 26))).join('')
}

/** Returns a question in a fixed form, with words of uneven frequency, so that all questions are slightly similar. */
function questionOf(random: () => number, vocabulary: readonly string[]): string {
  const pick = (): string => vocabulary[Math.floor(random() * random() * vocabulary.length)] ?? ''
  return `What is the ${Array.from({ length: 3 + Math.floor(random() * 8) }, pick).join(' ')} of the ${pick()}?`
}
