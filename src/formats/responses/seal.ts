import type { JsonObject } from '../../core/json.ts'

/**
 * A vendor's seal on thoughts, and thoughts in its cipher, travel in the `encrypted_content` of a reasoning item. Each
 * has a beginning of its own, which distinguishes it from the content of another vendor.
 */
const SEAL = 'svc-seal:'
const CIPHER = 'svc-cipher:'

export interface Thought {
  readonly signature?: string
  readonly redacted?: string
}

/** The `encrypted_content` that carries them. */
export function sealThought({ signature, redacted }: Thought): string | undefined {
  if (redacted !== undefined) return CIPHER + redacted
  return signature === undefined || signature === '' ? undefined : SEAL + signature
}

/** True for the item of a thought that only another vendor can open. */
export function isSealed(item: JsonObject): boolean {
  const { signature, redacted } = openThought(item['encrypted_content'])
  return signature !== undefined || redacted !== undefined
}

/** What `sealThought` put there; nothing for what another vendor did. */
export function openThought(content: unknown): Thought {
  if (typeof content !== 'string') return {}
  if (content.startsWith(SEAL)) return { signature: content.slice(SEAL.length) }
  return content.startsWith(CIPHER) ? { redacted: content.slice(CIPHER.length) } : {}
}
