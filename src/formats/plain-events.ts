import type { ByteSearch } from '../core/byte-search.ts'

const LF = 10
const SPACE = 32
const CLOSE_BRACE = 125
const LOWER_N = 110

/** True when the key occurs only with the value null. */
function isOnlyNull(search: ByteSearch, key: string): boolean {
  for (let at = search.find(key); at !== -1; at = search.find(key, at + 1)) {
    // The colon, and one space that some servers write.
    let value = at + key.length + 1
    if (search.bytes[value] === SPACE) value++
    if (search.bytes[value] !== LOWER_N) return false
  }
  return true
}

/**
 * True when every event is one line `data: {…}`, after one of the lines before it that `beginnings` name. What looks
 * otherwise (comments, several data lines, a cut object, an event of another name) is left to the parser.
 */
export function isEveryEventAnObject(search: ByteSearch, beginnings: readonly Uint8Array[]): boolean {
  const { bytes } = search
  let start = 0
  while (start < bytes.length) {
    const end = search.find('\n\n', start)
    if (end === -1 || bytes[end - 1] !== CLOSE_BRACE) return false
    const object = endOfBeginning(bytes, start, beginnings)
    if (object === -1 || object > end || bytes.indexOf(LF, object) !== end) return false
    start = end + 2
  }
  return true
}

/** ASCII text as bytes. */
export function beginning(text: string): Uint8Array {
  return new TextEncoder().encode(text)
}

function endOfBeginning(bytes: Uint8Array, start: number, beginnings: readonly Uint8Array[]): number {
  for (const expected of beginnings) if (startsWith(bytes, start, expected)) return start + expected.length
  return -1
}

function startsWith(bytes: Uint8Array, start: number, expected: Uint8Array): boolean {
  for (let index = 0; index < expected.length; index++) {
    if (bytes[start + index] !== expected[index]) return false
  }
  return true
}

const PLAIN_CHAT = ['data: {', 'data:{'].map(beginning)

/**
 * True for chunks that only carry content. Usage and finish reasons are read unless null; tool calls are read because an
 * id may be missing.
 */
export function isPlainChat(search: ByteSearch): boolean {
  if (search.find('[DONE]') !== -1 || search.find('"error"') !== -1 || search.find('_call') !== -1) return false
  if (search.find('\r') !== -1) return false
  return (
    isOnlyNull(search, '"usage"') && isOnlyNull(search, '"finish_reason"') && isEveryEventAnObject(search, PLAIN_CHAT)
  )
}

/** The name of an event leaves with it, so that only these names are taken, and only when the data agrees. */
const PLAIN_MESSAGES = ['content_block_delta', 'ping'].flatMap((name) =>
  ['', ' '].map((space) => beginning(`event: ${name}\ndata: {"type":${space}"${name}"`)),
)

/** True for deltas and pings: the beginnings and ends of messages and blocks are read. */
export function isPlainMessages(search: ByteSearch): boolean {
  if (search.find('message_') !== -1 || search.find('content_block_s') !== -1) return false
  if (search.find('"error"') !== -1 || search.find('\r') !== -1) return false
  return isEveryEventAnObject(search, PLAIN_MESSAGES)
}
