/** Finds ASCII patterns in bytes without decoding them. */
export interface ByteSearch {
  readonly bytes: Uint8Array
  /** The index of the first occurrence at or after `from`, or -1. */
  find(pattern: string, from?: number): number
}

/** Node's buffers search natively; elsewhere the bytes are read as one character each, which keeps the indices. */
export function searchBytes(bytes: Uint8Array): ByteSearch {
  if (isBuffer(bytes)) {
    const buffer: SearchableBytes = bytes
    return { bytes, find: (pattern, from = 0) => buffer.indexOf(pattern, from, 'latin1') }
  }
  let text: string | undefined
  const find = (pattern: string, from = 0): number => (text ??= oneByteText(bytes)).indexOf(pattern, from)
  return { bytes, find }
}

/** The part of Node's Buffer that is used. */
interface SearchableBytes {
  indexOf(value: string, from: number, encoding: 'latin1'): number
}

function isBuffer(bytes: Uint8Array): bytes is Uint8Array & SearchableBytes {
  return 'latin1Slice' in bytes
}

const SLICE = 8192

function oneByteText(bytes: Uint8Array): string {
  let text = ''
  for (let at = 0; at < bytes.length; at += SLICE) text += String.fromCharCode(...bytes.subarray(at, at + SLICE))
  return text
}
