import { sha256 as digest } from '@noble/hashes/sha2.js'
import { bytesToHex, utf8ToBytes } from '@noble/hashes/utils.js'

/** WebCrypto is not used, because it is asynchronous. */
export function sha256(text: string): string {
  return bytesToHex(digest(utf8ToBytes(text)))
}
