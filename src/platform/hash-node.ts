import { hash } from 'node:crypto'

/** Returns the SHA-256 hash of the string's UTF-8 bytes as 64 hex digits. A lone surrogate is hashed as U+FFFD. */
export function sha256(text: string): string {
  return hash('sha256', text)
}
