import type { Vocabulary } from '../core/model.ts'
import { yieldToEventLoop } from './yield.ts'
import { type Ranks, readRanks } from './ranks.ts'

/** Maximum number of UTF-16 units that the pattern and the merges process together. */
const WINDOW = 8192
/**
 * Distance from the end of a window, in UTF-16 units, within which a piece may be cut off. The next window begins with
 * such a piece.
 */
const MARGIN = 4
/** Number of UTF-16 units between two yields to the event loop. */
const SLICE = 32_768

/** The tokens of a vocabulary, and the pattern that splits text into pieces before they are merged. */
interface Loaded {
  readonly ranks: Ranks
  readonly pattern: RegExp
}

/** Loaders of vocabularies. The imports are literal, so that bundlers find them. */
const SOURCES = {
  o200k: () => import('js-tiktoken/ranks/o200k_base'),
  cl100k: () => import('js-tiktoken/ranks/cl100k_base'),
}

/** Counts tokens exactly. Special tokens in the text count as plain text. */
export type ExactCount = (text: string, signal?: AbortSignal) => Promise<number>

/** Returns a counter for one vocabulary, which is loaded at the first call. */
export function createExactCount(name: Vocabulary = 'o200k'): ExactCount {
  let loading: Promise<Loaded> | undefined
  let sinceYield = 0

  const vocabularyOf = async (): Promise<Loaded> => {
    loading ??= load(name)
    try {
      return await loading
    } catch (cause) {
      loading = undefined
      throw cause
    }
  }

  return async (text, signal) => {
    signal?.throwIfAborted()
    if (text === '') return 0
    const vocabulary = await vocabularyOf()
    let tokens = 0
    let at = 0
    while (at < text.length) {
      const step = countWindow(vocabulary, text.slice(at, at + WINDOW), at + WINDOW >= text.length)
      tokens += step.tokens
      at += step.length
      sinceYield += step.length
      if (sinceYield < SLICE) continue
      sinceYield = 0
      await yieldToEventLoop()
      signal?.throwIfAborted()
    }
    return tokens
  }
}

async function load(name: Vocabulary): Promise<Loaded> {
  const { default: source } = await SOURCES[name]()
  return { ranks: await readRanks(source.bpe_ranks), pattern: new RegExp(source.pat_str, 'gu') }
}

const scratch: Uint8Array = new Uint8Array(WINDOW * 3)

/** Counts the pieces that are complete in the window. A piece longer than the window is counted in parts. */
function countWindow(
  { ranks, pattern }: Loaded,
  window: string,
  last: boolean,
): { readonly tokens: number; readonly length: number } {
  const trusted = last ? window.length : window.length - MARGIN
  let tokens = 0
  let start = 0
  pattern.lastIndex = 0
  while (start < window.length && pattern.test(window)) {
    const end = pattern.lastIndex
    if (end > trusted && start > 0) return { tokens, length: start }
    tokens += countPiece(scratch, writeUtf8(window, start, end), ranks)
    start = end
  }
  return { tokens, length: window.length }
}

/** Writes text[start, end) to `scratch` as UTF-8, lone surrogates as U+FFFD. Returns the number of bytes. */
function writeUtf8(text: string, start: number, end: number): number {
  let size = 0
  for (let at = start; at < end; at++) {
    const unit = text.charCodeAt(at)
    if (unit < 0x80) {
      scratch[size++] = unit
      continue
    }
    const code = text.codePointAt(at) ?? 0
    if (code > 0xffff) at++
    size = writeCodePoint(code >= 0xd800 && code <= 0xdfff ? 0xfffd : code, size)
  }
  return size
}

function writeCodePoint(code: number, at: number): number {
  let size = at
  if (code < 0x800) {
    scratch[size++] = 0xc0 | (code >> 6)
  } else if (code < 0x10000) {
    scratch[size++] = 0xe0 | (code >> 12)
    scratch[size++] = 0x80 | ((code >> 6) & 0x3f)
  } else {
    scratch[size++] = 0xf0 | (code >> 18)
    scratch[size++] = 0x80 | ((code >> 12) & 0x3f)
    scratch[size++] = 0x80 | ((code >> 6) & 0x3f)
  }
  scratch[size++] = 0x80 | (code & 0x3f)
  return size
}

/** Maximum size of a piece for `countPiece`, in bytes. */
const MAX_PIECE = 32_768

/** The queue contains `rank × MAX_PIECE + position` of each pair: lowest rank first, then leftmost. */
interface Workspace {
  readonly next: Int32Array
  readonly previous: Int32Array
  /** Rank of the pair that begins at a position, or -1. */
  readonly pairRank: Int32Array
  readonly queue: Float64Array
}

const workspace: Workspace = {
  next: new Int32Array(MAX_PIECE + 1),
  previous: new Int32Array(MAX_PIECE + 1),
  pairRank: new Int32Array(MAX_PIECE + 1),
  queue: new Float64Array(MAX_PIECE * 3),
}

/**
 * Returns the number of tokens of one piece: byte-pair merges in the order of their ranks. The queue reduces the work
 * for n bytes to n log n steps.
 */
function countPiece(bytes: Uint8Array, length: number, ranks: Ranks): number {
  if (length < 2 || ranks.rankOf(bytes, 0, length) !== -1) return 1
  const { next, previous, pairRank, queue } = workspace
  let queued = 0
  for (let at = 0; at < length; at++) {
    next[at] = at + 1
    previous[at] = at - 1
    const rank = at + 1 < length ? ranks.rankOfPair(bytes[at] ?? 0, bytes[at + 1] ?? 0) : -1
    pairRank[at] = rank
    if (rank !== -1) queued = push(queue, queued, rank * MAX_PIECE + at)
  }

  /** Queues the new pair at `at`. */
  const renew = (at: number): void => {
    const middle = next[at] ?? length
    const end = middle < length ? (next[middle] ?? length) : length
    const rank = middle < length && end - at <= ranks.longest ? ranks.rankOf(bytes, at, end) : -1
    pairRank[at] = rank
    if (rank !== -1) queued = push(queue, queued, rank * MAX_PIECE + at)
  }

  let tokens = length
  while (queued > 0) {
    const best = queue[0] ?? 0
    queued = pop(queue, queued)
    const at = best % MAX_PIECE
    if (pairRank[at] !== (best - at) / MAX_PIECE) continue
    const right = next[at] ?? length
    const after = next[right] ?? length
    pairRank[right] = -1
    next[at] = after
    if (after < length) previous[after] = at
    tokens--
    renew(at)
    const before = previous[at] ?? -1
    if (before >= 0) renew(before)
  }
  return tokens
}

function push(queue: Float64Array, size: number, key: number): number {
  let at = size
  while (at > 0) {
    const parent = (at - 1) >> 1
    const above = queue[parent] ?? 0
    if (above <= key) break
    queue[at] = above
    at = parent
  }
  queue[at] = key
  return size + 1
}

function pop(queue: Float64Array, size: number): number {
  const left = size - 1
  const key = queue[left] ?? 0
  let at = 0
  for (let child = 1; child < left; child = 2 * at + 1) {
    if (child + 1 < left && (queue[child + 1] ?? 0) < (queue[child] ?? 0)) child++
    const below = queue[child] ?? 0
    if (below >= key) break
    queue[at] = below
    at = child
  }
  queue[at] = key
  return left
}
