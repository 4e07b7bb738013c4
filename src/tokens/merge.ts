import type { Ranks } from './ranks.ts'

/** The longest piece in bytes that `countPiece` takes. */
export const LONGEST_PIECE = 32_768

/** A pair's place in the queue is `rank × LONGEST_PIECE + position`: lowest rank first, leftmost first. */
interface Workspace {
  readonly next: Int32Array
  readonly previous: Int32Array
  /** The rank of the pair that begins at a position, or -1. */
  readonly pairRank: Int32Array
  readonly queue: Float64Array
}

const workspace: Workspace = {
  next: new Int32Array(LONGEST_PIECE + 1),
  previous: new Int32Array(LONGEST_PIECE + 1),
  pairRank: new Int32Array(LONGEST_PIECE + 1),
  queue: new Float64Array(LONGEST_PIECE * 3),
}

/**
 * The number of tokens of one piece: byte-pair merges in the order of their ranks, as every tokenizer of the family
 * does them, but from a queue, so that a piece of n bytes takes n log n steps where the usual loop takes n².
 */
export function countPiece(bytes: Uint8Array, length: number, ranks: Ranks): number {
  if (length < 2 || ranks.rankOf(bytes, 0, length) !== -1) return 1
  const { next, previous, pairRank, queue } = workspace
  let queued = 0
  for (let at = 0; at < length; at++) {
    next[at] = at + 1
    previous[at] = at - 1
    const rank = at + 1 < length ? ranks.rankOfPair(bytes[at] ?? 0, bytes[at + 1] ?? 0) : -1
    pairRank[at] = rank
    if (rank !== -1) queued = push(queue, queued, rank * LONGEST_PIECE + at)
  }

  /** Looks up the pair that now begins at `at`, and queues it. */
  const renew = (at: number): void => {
    const middle = next[at] ?? length
    const end = middle < length ? (next[middle] ?? length) : length
    const rank = middle < length && end - at <= ranks.longest ? ranks.rankOf(bytes, at, end) : -1
    pairRank[at] = rank
    if (rank !== -1) queued = push(queue, queued, rank * LONGEST_PIECE + at)
  }

  let tokens = length
  while (queued > 0) {
    const best = queue[0] ?? 0
    queued = pop(queue, queued)
    const at = best % LONGEST_PIECE
    if (pairRank[at] !== (best - at) / LONGEST_PIECE) continue
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
