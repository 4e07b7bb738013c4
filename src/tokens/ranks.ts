import { yieldToEventLoop } from './yield.ts'

/** The vocabulary of a byte-pair encoding: the byte strings that are tokens, ranked in the order of learning. */
export interface Ranks {
  /** Returns the rank of the token with exactly these bytes, or -1. */
  rankOf(bytes: Uint8Array, start: number, end: number): number
  /** Returns the rank of a token of two bytes, or -1. */
  rankOfPair(first: number, second: number): number
  /** Length of the longest token in bytes. */
  readonly longest: number
}

const PIECES_PER_SLICE = 20_000

/**
 * Reads ranks in the format of js-tiktoken: lines of `! <first rank> <base64> <base64> …`. Tokens are stored in one
 * array of bytes with a hash table of numbers (6 MB). A map of 200,000 strings would take 40 MB and one second to
 * build.
 */
export async function readRanks(text: string): Promise<Ranks> {
  const pool = new Uint8Array(text.length)
  const ends: number[] = []
  const ids: number[] = []
  let size = 0
  let longest = 0
  for (const line of text.split('\n')) {
    const first = line.indexOf(' ', 2)
    let id = Number(line.slice(2, first))
    for (let at = first + 1; at > 0 && at < line.length; id++) {
      const blank = line.indexOf(' ', at)
      const end = blank === -1 ? line.length : blank
      const start = size
      size = decodeBase64(line, at, { end, into: pool, size })
      longest = Math.max(longest, size - start)
      ids.push(id)
      ends.push(size)
      at = end + 1
      if (ids.length % PIECES_PER_SLICE === 0) await yieldToEventLoop()
    }
  }
  return buildTable(pool.slice(0, size), Int32Array.from(ends), Int32Array.from(ids), longest)
}

async function buildTable(pool: Uint8Array, ends: Int32Array, ids: Int32Array, longest: number): Promise<Ranks> {
  const count = ends.length
  const slotCount = 2 ** Math.ceil(Math.log2(Math.max(2, count * 2)))
  const mask = slotCount - 1
  const slots = new Int32Array(slotCount).fill(-1)
  const pairs = new Int32Array(65_536).fill(-1)
  for (let token = 0; token < count; token++) {
    const start = token === 0 ? 0 : (ends[token - 1] ?? 0)
    const end = ends[token] ?? 0
    if (end - start === 2) pairs[((pool[start] ?? 0) << 8) | (pool[start + 1] ?? 0)] = ids[token] ?? -1
    let slot = hashOf(pool, start, end) & mask
    while (slots[slot] !== -1) slot = (slot + 1) & mask
    slots[slot] = token
    if (token % PIECES_PER_SLICE === 0) await yieldToEventLoop()
  }

  const isToken = (token: number, bytes: Uint8Array, start: number, end: number): boolean => {
    const from = token === 0 ? 0 : (ends[token - 1] ?? 0)
    if ((ends[token] ?? 0) - from !== end - start) return false
    for (let at = start; at < end; at++) if (pool[from + at - start] !== bytes[at]) return false
    return true
  }

  const rankOf = (bytes: Uint8Array, start: number, end: number): number => {
    let slot = hashOf(bytes, start, end) & mask
    for (let token = slots[slot] ?? -1; token !== -1; token = slots[slot] ?? -1) {
      if (isToken(token, bytes, start, end)) return ids[token] ?? -1
      slot = (slot + 1) & mask
    }
    return -1
  }
  return { rankOf, rankOfPair: (first, second) => pairs[(first << 8) | second] ?? -1, longest }
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

interface Decoding {
  readonly end: number
  readonly into: Uint8Array
  readonly size: number
}

/** Appends the bytes of text[start, end) after `size` bytes. Returns the new size. */
function decodeBase64(text: string, start: number, { end, into, size: before }: Decoding): number {
  let size = before
  let held = 0
  let bits = 0
  for (let index = start; index < end; index++) {
    const code = text.charCodeAt(index)
    if (code === 61) break
    held = ((held << 6) | (SEXTETS[code] ?? 0)) & 0xffff
    bits += 6
    if (bits < 8) continue
    bits -= 8
    into[size++] = (held >> bits) & 0xff
  }
  return size
}
