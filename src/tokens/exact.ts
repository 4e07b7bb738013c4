import type { Vocabulary } from '../core/ports.ts'
import { utf8Length } from './estimate.ts'
import { yieldToEventLoop } from './event-loop.ts'

const WINDOW_LENGTH = 8192
/** A piece that ends this close to a window's end may be incomplete, so the next window starts with it. */
const MARGIN_LENGTH = 4
const SLICE_LENGTH = 32_768

interface Encoding {
  readonly ranks: Ranks
  /** Splits text into pieces. Bytes are merged into tokens only within a piece. */
  readonly pattern: RegExp
}

/** The imports are literal, because bundlers cannot resolve computed paths. */
const SOURCES = {
  o200k: () => import('js-tiktoken/ranks/o200k_base'),
  cl100k: () => import('js-tiktoken/ranks/cl100k_base'),
}

/** Special tokens in the text count as plain text. */
export type ExactCounter = (text: string, signal?: AbortSignal) => Promise<number>

export async function createExactCounter(vocabulary: Vocabulary): Promise<ExactCounter> {
  const { default: source } = await SOURCES[vocabulary]()
  const encoding = { ranks: await readRanks(source.bpe_ranks), pattern: new RegExp(source.pat_str, 'gu') }
  let lengthSinceYield = 0

  return async (text, signal) => {
    signal?.throwIfAborted()
    let tokens = 0
    let start = 0
    while (start < text.length) {
      const end = start + WINDOW_LENGTH
      const counted = countWindow(encoding, text.slice(start, end), end >= text.length)
      tokens += counted.tokens
      start += counted.length
      lengthSinceYield += counted.length
      if (lengthSinceYield < SLICE_LENGTH) continue
      lengthSinceYield = 0
      await yieldToEventLoop()
      signal?.throwIfAborted()
    }
    return tokens
  }
}

const encoder = new TextEncoder()
const utf8Buffer: Uint8Array = new Uint8Array(WINDOW_LENGTH * 3)

/** A piece longer than the window is counted in parts. */
function countWindow(
  { ranks, pattern }: Encoding,
  window: string,
  isLast: boolean,
): { readonly tokens: number; readonly length: number } {
  encoder.encodeInto(window, utf8Buffer)
  const completeEnd = isLast ? window.length : window.length - MARGIN_LENGTH
  let tokens = 0
  let start = 0
  let byteStart = 0
  pattern.lastIndex = 0
  while (start < window.length && pattern.test(window)) {
    const end = pattern.lastIndex
    if (end > completeEnd && start > 0) return { tokens, length: start }
    const byteEnd = byteStart + utf8Length(window.slice(start, end))
    tokens += countPiece(utf8Buffer.subarray(byteStart, byteEnd), ranks)
    start = end
    byteStart = byteEnd
  }
  return { tokens, length: window.length }
}

const MAX_PIECE_BYTES = 32_768

/** Reused for each piece. A position is the index of a token's first byte. */
const workspace = {
  next: new Int32Array(MAX_PIECE_BYTES + 1),
  previous: new Int32Array(MAX_PIECE_BYTES + 1),
  pairRank: new Int32Array(MAX_PIECE_BYTES + 1),
  /** A heap of `rank × MAX_PIECE_BYTES + position` for each pair: lowest rank first, then leftmost. */
  queue: new Float64Array(MAX_PIECE_BYTES * 3),
}

/** Merges byte pairs, lowest rank first, in O(n log n) for n bytes. */
function countPiece(bytes: Uint8Array, ranks: Ranks): number {
  const { length } = bytes
  if (length < 2 || ranks.rankOf(bytes, 0, length) !== -1) return 1
  const { next, previous, pairRank, queue } = workspace
  let queueSize = 0
  for (let position = 0; position < length; position++) {
    next[position] = position + 1
    previous[position] = position - 1
    const rank = position + 1 < length ? ranks.rankOfPair(bytes[position] ?? 0, bytes[position + 1] ?? 0) : -1
    pairRank[position] = rank
    if (rank !== -1) queueSize = pushToHeap(queue, queueSize, rank * MAX_PIECE_BYTES + position)
  }

  const updatePair = (position: number): void => {
    const middle = next[position] ?? length
    const end = middle < length ? (next[middle] ?? length) : length
    const rank = middle < length && end - position <= ranks.maxLength ? ranks.rankOf(bytes, position, end) : -1
    pairRank[position] = rank
    if (rank !== -1) queueSize = pushToHeap(queue, queueSize, rank * MAX_PIECE_BYTES + position)
  }

  let tokens = length
  while (queueSize > 0) {
    const best = queue[0] ?? 0
    queueSize = popFromHeap(queue, queueSize)
    const position = best % MAX_PIECE_BYTES
    if (pairRank[position] !== (best - position) / MAX_PIECE_BYTES) continue
    const right = next[position] ?? length
    const after = next[right] ?? length
    pairRank[right] = -1
    next[position] = after
    if (after < length) previous[after] = position
    tokens--
    updatePair(position)
    const before = previous[position] ?? -1
    if (before >= 0) updatePair(before)
  }
  return tokens
}

function pushToHeap(queue: Float64Array, size: number, key: number): number {
  let index = size
  while (index > 0) {
    const parent = (index - 1) >> 1
    const parentKey = queue[parent] ?? 0
    if (parentKey <= key) break
    queue[index] = parentKey
    index = parent
  }
  queue[index] = key
  return size + 1
}

function popFromHeap(queue: Float64Array, size: number): number {
  const newSize = size - 1
  const key = queue[newSize] ?? 0
  let index = 0
  for (let child = 1; child < newSize; child = 2 * index + 1) {
    if (child + 1 < newSize && (queue[child + 1] ?? 0) < (queue[child] ?? 0)) child++
    const childKey = queue[child] ?? 0
    if (childKey >= key) break
    queue[index] = childKey
    index = child
  }
  queue[index] = key
  return newSize
}

/** Ranks are -1 for bytes that are not a token. */
interface Ranks {
  rankOf(bytes: Uint8Array, start: number, end: number): number
  rankOfPair(first: number, second: number): number
  readonly maxLength: number
}

const TOKENS_PER_SLICE = 20_000

/** Parses the format of js-tiktoken: lines of `! <first rank> <base64> <base64> …`. */
async function readRanks(text: string): Promise<Ranks> {
  const pool = new Uint8Array(text.length)
  const ends: number[] = []
  const ranks: number[] = []
  let size = 0
  let maxLength = 0
  for (const line of text.split('\n')) {
    const rankEnd = line.indexOf(' ', 2)
    let rank = Number(line.slice(2, rankEnd))
    for (let wordStart = rankEnd + 1; wordStart > 0 && wordStart < line.length; rank++) {
      const space = line.indexOf(' ', wordStart)
      const end = space === -1 ? line.length : space
      const start = size
      size = decodeBase64(line, wordStart, { end, output: pool, size })
      maxLength = Math.max(maxLength, size - start)
      ranks.push(rank)
      ends.push(size)
      wordStart = end + 1
      if (ranks.length % TOKENS_PER_SLICE === 0) await yieldToEventLoop()
    }
  }
  return buildTable(pool.slice(0, size), Int32Array.from(ends), Int32Array.from(ranks), maxLength)
}

/** Typed arrays for 200,000 tokens take about 6 MB. A Map with strings would take at least three times as much. */
async function buildTable(pool: Uint8Array, ends: Int32Array, ranks: Int32Array, maxLength: number): Promise<Ranks> {
  const count = ends.length
  const slotCount = 2 ** Math.ceil(Math.log2(Math.max(2, count * 2)))
  const mask = slotCount - 1
  const slots = new Int32Array(slotCount).fill(-1)
  const pairs = new Int32Array(65_536).fill(-1)
  for (let token = 0; token < count; token++) {
    const start = token === 0 ? 0 : (ends[token - 1] ?? 0)
    const end = ends[token] ?? 0
    if (end - start === 2) pairs[((pool[start] ?? 0) << 8) | (pool[start + 1] ?? 0)] = ranks[token] ?? -1
    let slot = hashOf(pool, start, end) & mask
    while (slots[slot] !== -1) slot = (slot + 1) & mask
    slots[slot] = token
    if (token % TOKENS_PER_SLICE === 0) await yieldToEventLoop()
  }

  const isToken = (token: number, bytes: Uint8Array, start: number, end: number): boolean => {
    const from = token === 0 ? 0 : (ends[token - 1] ?? 0)
    if ((ends[token] ?? 0) - from !== end - start) return false
    for (let index = start; index < end; index++) if (pool[from + index - start] !== bytes[index]) return false
    return true
  }

  const rankOf = (bytes: Uint8Array, start: number, end: number): number => {
    let slot = hashOf(bytes, start, end) & mask
    for (let token = slots[slot] ?? -1; token !== -1; token = slots[slot] ?? -1) {
      if (isToken(token, bytes, start, end)) return ranks[token] ?? -1
      slot = (slot + 1) & mask
    }
    return -1
  }
  return { rankOf, rankOfPair: (first, second) => pairs[(first << 8) | second] ?? -1, maxLength }
}

function hashOf(bytes: Uint8Array, start: number, end: number): number {
  let hash = 0x811c9dc5
  for (let index = start; index < end; index++) hash = Math.imul(hash ^ (bytes[index] ?? 0), 0x01000193)
  return (hash ^ (hash >>> 15)) >>> 0
}

const BASE64 = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'
const SEXTETS: Uint8Array = Uint8Array.from({ length: 128 }, (_, code) =>
  Math.max(0, BASE64.indexOf(String.fromCharCode(code))),
)

interface DecodeOptions {
  readonly end: number
  readonly output: Uint8Array
  readonly size: number
}

function decodeBase64(text: string, start: number, { end, output, size: before }: DecodeOptions): number {
  let size = before
  let buffer = 0
  let bits = 0
  for (let index = start; index < end; index++) {
    const code = text.charCodeAt(index)
    if (code === 61) break
    buffer = ((buffer << 6) | (SEXTETS[code] ?? 0)) & 0xffff
    bits += 6
    if (bits < 8) continue
    bits -= 8
    output[size++] = (buffer >> bits) & 0xff
  }
  return size
}
