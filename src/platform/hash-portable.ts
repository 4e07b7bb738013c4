import { sha256 as digest } from '@noble/hashes/sha2.js'
import { bytesToHex, utf8ToBytes } from '@noble/hashes/utils.js'

/** `sha256` for platforms without node:crypto. WebCrypto cannot take its place, because it is asynchronous. */
export function sha256(text: string): string {
  return bytesToHex(digest(utf8ToBytes(text)))
}
