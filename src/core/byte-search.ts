import { isNodeBytes } from './json.ts'

/** Searches the bytes of an event without decoding them. */
export interface ByteSearch {
  readonly bytes: Uint8Array
  find(pattern: string, from?: number): number
}

/** Decodes windows-1252, which has one character per byte. */
const decoder = new TextDecoder('latin1')

/** Strings are searched faster than bytes, so the first search converts the bytes. */
export function createByteSearch(bytes: Uint8Array): ByteSearch {
  let text: string | undefined
  const find = (pattern: string, from = 0): number => {
    text ??= isNodeBytes(bytes) ? bytes.latin1Slice() : decoder.decode(bytes)
    return text.indexOf(pattern, from)
  }
  return { bytes, find }
}
