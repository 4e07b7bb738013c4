/** Finds ASCII patterns in bytes without decoding them. */
export interface ByteSearch {
  readonly bytes: Uint8Array
  /** The index of the first occurrence at or after `from`, or -1. */
  find(pattern: string, from?: number): number
}

/** The bytes are read as one character each, which keeps the indices: strings are searched faster than buffers. */
export function searchBytes(bytes: Uint8Array): ByteSearch {
  let text: string | undefined
  const find = (pattern: string, from = 0): number => (text ??= oneByteText(bytes)).indexOf(pattern, from)
  return { bytes, find }
}

/** The part of Node's Buffer that is used. */
interface NodeBytes {
  latin1Slice(): string
}

function isNodeBytes(bytes: Uint8Array): bytes is Uint8Array & NodeBytes {
  return 'latin1Slice' in bytes
}

/** A decoder of a character for each byte; other signs than ASCII are not those of ISO 8859-1. */
const decoder = new TextDecoder('latin1')

function oneByteText(bytes: Uint8Array): string {
  return isNodeBytes(bytes) ? bytes.latin1Slice() : decoder.decode(bytes)
}
