import type { ByteSearch } from '../core/byte-search.ts'

const LF = 10
const SPACE = 32
const OPEN_BRACE = 123
const CLOSE_BRACE = 125
const LOWER_N = 110

/** The line that names an event, its line end included. */
export type EventLine = readonly number[]

export function eventLine(name: string): EventLine {
  return [...new TextEncoder().encode(`event: ${name}\n`)]
}

/** True when the key occurs only with the value null. */
export function isOnlyNull(search: ByteSearch, key: string): boolean {
  for (let at = search.find(key); at !== -1; at = search.find(key, at + 1)) {
    // The colon, and one space that some servers write.
    let value = at + key.length + 1
    if (search.bytes[value] === SPACE) value++
    if (search.bytes[value] !== LOWER_N) return false
  }
  return true
}

/**
 * True when every event is one line `data: {…}`, after one of the lines `names` where they are given. What looks otherwise
 * (comments, several data lines, a cut object, another name) is left to the parser.
 */
export function isEveryEventAnObject(search: ByteSearch, names?: readonly EventLine[]): boolean {
  const { bytes } = search
  let start = 0
  while (start < bytes.length) {
    const end = search.find('\n\n', start)
    if (end === -1 || bytes[end - 1] !== CLOSE_BRACE) return false
    const name = names?.find((expected) => startsWith(bytes, start, expected))
    if (names !== undefined && name === undefined) return false
    const line = start + (name?.length ?? 0)
    if (line > end || !isDataLine(bytes, line) || bytes.indexOf(LF, line) !== end) return false
    start = end + 2
  }
  return true
}

/** `data:` */
const DATA = [100, 97, 116, 97, 58]

function startsWith(bytes: Uint8Array, start: number, expected: readonly number[]): boolean {
  for (let index = 0; index < expected.length; index++) {
    if (bytes[start + index] !== expected[index]) return false
  }
  return true
}

function isDataLine(bytes: Uint8Array, start: number): boolean {
  if (!startsWith(bytes, start, DATA)) return false
  const value = start + DATA.length
  return bytes[bytes[value] === SPACE ? value + 1 : value] === OPEN_BRACE
}
