import { sha256 } from '#hash'

/** What the secret of a key begins with. */
export type KeyFormat = 'sk-bf' | 'sk-svc'

/** Longer texts are no keys and are not hashed. */
const MAX_SECRET = 512
const PREFIX_LENGTH = 10

/** A new secret: the form and a version 4 UUID. */
export function createSecret(format: KeyFormat, uuid: () => string): string {
  return `${format}-${uuid()}`
}

/** The SHA-256 of a secret as 64 hex digits; undefined for a text that cannot be a key. */
export function hashSecret(secret: string): string | undefined {
  return secret.length === 0 || secret.length > MAX_SECRET ? undefined : sha256(secret)
}

/** What lists show of a secret. */
export function prefixOfSecret(secret: string): string {
  return secret.slice(0, PREFIX_LENGTH)
}

/** True for equal secrets, in a time that does not tell where they differ: what is compared are their hashes. */
export function isSameSecret(given: string, expected: string): boolean {
  return isSameHash(hashSecret(given) ?? '', hashSecret(expected) ?? '-')
}

/** True for equal texts; the time depends on their length alone. */
export function isSameHash(given: string, expected: string): boolean {
  if (given.length !== expected.length) return false
  let difference = 0
  for (let index = 0; index < given.length; index += 1) {
    difference |= given.charCodeAt(index) ^ expected.charCodeAt(index)
  }
  return difference === 0
}
