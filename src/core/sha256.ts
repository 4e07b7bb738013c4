/**
 * SHA-256 in plain JavaScript, because the platforms' own is either asynchronous (WebCrypto: a trip through a thread
 * pool, several times dearer than hashing one short secret here) or not on every platform (node:crypto).
 */
const ROUND: Int32Array = roots(64, 1 / 3)
const START: Int32Array = roots(8, 1 / 2)
const BLOCK = 64
/** The padding: a one bit, and the length as eight bytes. */
const PADDING = 9
/** A UTF-16 unit is at most so many bytes of UTF-8. */
const BYTES_A_UNIT = 3

const encoder = new TextEncoder()
/** Room for secrets and ids, used again and again; cleared after each use. */
const scratch = new Uint8Array(2_048)
const schedule = new Int32Array(64)
const state = new Int32Array(8)

/** The SHA-256 of a text's UTF-8 bytes as 64 hex digits. A lone surrogate counts as U+FFFD. */
export function sha256(text: string): string {
  const room = text.length * BYTES_A_UNIT + PADDING + BLOCK
  const bytes = room <= scratch.length ? scratch : new Uint8Array(room)
  const length = pad(bytes, encoder.encodeInto(text, bytes).written)
  state.set(START)
  for (let offset = 0; offset < length; offset += BLOCK) {
    expand(bytes, offset)
    compress()
  }
  bytes.fill(0, 0, length)
  let digest = ''
  for (let index = 0; index < 8; index += 1) digest += (at(state, index) >>> 0).toString(16).padStart(8, '0')
  return digest
}

/** Puts a one bit, zeros and the message's length in bits after the message; returns the length of all. */
function pad(bytes: Uint8Array, written: number): number {
  const length = Math.ceil((written + PADDING) / BLOCK) * BLOCK
  bytes[written] = 0x80
  const view = new DataView(bytes.buffer)
  view.setUint32(length - 8, Math.floor((written * 8) / 2 ** 32))
  view.setUint32(length - 4, written * 8)
  return length
}

function expand(bytes: Uint8Array, offset: number): void {
  for (let index = 0; index < 16; index += 1) schedule[index] = wordAt(bytes, offset + index * 4)
  for (let index = 16; index < 64; index += 1) {
    const early = at(schedule, index - 15)
    const late = at(schedule, index - 2)
    const small0 = rotate(early, 7) ^ rotate(early, 18) ^ (early >>> 3)
    const small1 = rotate(late, 17) ^ rotate(late, 19) ^ (late >>> 10)
    schedule[index] = (at(schedule, index - 16) + small0 + at(schedule, index - 7) + small1) | 0
  }
}

/** One block; the letters are those of the standard (FIPS 180-4). */
function compress(): void {
  let a = at(state, 0)
  let b = at(state, 1)
  let c = at(state, 2)
  let d = at(state, 3)
  let e = at(state, 4)
  let f = at(state, 5)
  let g = at(state, 6)
  let h = at(state, 7)
  for (let index = 0; index < 64; index += 1) {
    const big1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)
    const choice = (e & f) ^ (~e & g)
    const first = (h + big1 + choice + at(ROUND, index) + at(schedule, index)) | 0
    const big0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)
    const majority = (a & b) ^ (a & c) ^ (b & c)
    h = g
    g = f
    f = e
    e = (d + first) | 0
    d = c
    c = b
    b = a
    a = (first + big0 + majority) | 0
  }
  state[0] = at(state, 0) + a
  state[1] = at(state, 1) + b
  state[2] = at(state, 2) + c
  state[3] = at(state, 3) + d
  state[4] = at(state, 4) + e
  state[5] = at(state, 5) + f
  state[6] = at(state, 6) + g
  state[7] = at(state, 7) + h
}

function at(words: Int32Array, index: number): number {
  return words[index] ?? 0
}

function wordAt(bytes: Uint8Array, offset: number): number {
  const high = ((bytes[offset] ?? 0) << 24) | ((bytes[offset + 1] ?? 0) << 16)
  return high | ((bytes[offset + 2] ?? 0) << 8) | (bytes[offset + 3] ?? 0)
}

function rotate(word: number, by: number): number {
  return (word >>> by) | (word << (32 - by))
}

/** The standard's constants: the first 32 bits of the fractional parts of roots of the first primes. */
function roots(count: number, exponent: number): Int32Array {
  const found: number[] = []
  for (let candidate = 2; found.length < count; candidate += 1) {
    if (found.every((prime) => candidate % prime !== 0)) found.push(candidate)
  }
  return Int32Array.from(found, (prime) => Math.floor((prime ** exponent % 1) * 2 ** 32) | 0)
}

/** Up to this length plain JavaScript costs less than a trip through the thread pool. */
const SHORT = 2_000

/** The same for a text of any length: a long one is hashed by the platform, beside everything else. */
export async function digestOf(text: string): Promise<string> {
  if (text.length <= SHORT) return sha256(text)
  const digest = await crypto.subtle.digest('SHA-256', encoder.encode(text))
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('')
}
