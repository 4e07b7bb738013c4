/**
 * SHA-256 in plain JavaScript, because the platforms' own is either asynchronous (WebCrypto: a trip through a thread
 * pool, several times dearer than hashing one short secret here) or not on every platform (node:crypto).
 */
const ROUND: Uint32Array = roots(64, 1 / 3)
const START: Uint32Array = roots(8, 1 / 2)
const BLOCK = 64
const encoder = new TextEncoder()

/** The SHA-256 of a text's UTF-8 bytes as 64 hex digits. A lone surrogate counts as U+FFFD. */
export function sha256(text: string): string {
  const bytes = padded(encoder.encode(text))
  const view = new DataView(bytes.buffer)
  const state = START.slice()
  const schedule = new Uint32Array(64)
  for (let offset = 0; offset < bytes.length; offset += BLOCK) {
    expand(view, offset, schedule)
    compress(state, schedule)
  }
  return Array.from(state, (word) => word.toString(16).padStart(8, '0')).join('')
}

/** The message, a one bit, zeros, and the message's length in bits as the last eight bytes. */
function padded(message: Uint8Array): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(Math.ceil((message.length + 9) / BLOCK) * BLOCK)
  bytes.set(message)
  bytes[message.length] = 0x80
  const view = new DataView(bytes.buffer)
  view.setUint32(bytes.length - 8, Math.floor((message.length * 8) / 2 ** 32))
  view.setUint32(bytes.length - 4, message.length * 8)
  return bytes
}

function expand(view: DataView, offset: number, schedule: Uint32Array): void {
  for (let index = 0; index < 16; index += 1) schedule[index] = view.getUint32(offset + index * 4)
  for (let index = 16; index < 64; index += 1) {
    const early = at(schedule, index - 15)
    const late = at(schedule, index - 2)
    const small0 = rotate(early, 7) ^ rotate(early, 18) ^ (early >>> 3)
    const small1 = rotate(late, 17) ^ rotate(late, 19) ^ (late >>> 10)
    schedule[index] = at(schedule, index - 16) + small0 + at(schedule, index - 7) + small1
  }
}

/** One block; the letters are those of the standard (FIPS 180-4). */
function compress(state: Uint32Array, schedule: Uint32Array): void {
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
  for (const [index, word] of [a, b, c, d, e, f, g, h].entries()) state[index] = at(state, index) + word
}

function at(words: Uint32Array, index: number): number {
  return words[index] ?? 0
}

function rotate(word: number, by: number): number {
  return (word >>> by) | (word << (32 - by))
}

/** The standard's constants: the first 32 bits of the fractional parts of roots of the first primes. */
function roots(count: number, exponent: number): Uint32Array {
  const found: number[] = []
  for (let candidate = 2; found.length < count; candidate += 1) {
    if (found.every((prime) => candidate % prime !== 0)) found.push(candidate)
  }
  return Uint32Array.from(found, (prime) => (prime ** exponent % 1) * 2 ** 32)
}
