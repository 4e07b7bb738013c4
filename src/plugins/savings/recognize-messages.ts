/**
 * Carries the fingerprints of messages from turn to turn. The prefix hashes, which the record of what was sent needs
 * anyway, show which messages are the same as on an earlier turn, so their texts are not read again for each cache.
 */
import { LRUCache } from 'lru-cache'
import type { Meter } from '../../core/ports.ts'
import type { Message, Part, Prompt } from '../../core/prompt.ts'
import { messageHashesOf } from './conversation.ts'

export interface MessageRecognizer {
  /** Call before the messages are counted. */
  recognize(prompt: Prompt): void
  /** Call after the messages were counted. */
  remember(prompt: Prompt): void
}

/** About 400 conversations of 118,000 tokens. */
const MAX_BYTES = 8 * 1024 * 1024
const BYTES_PER_ENTRY = 256

export function createMessageRecognizer(meter: Pick<Meter, 'fingerprintOf' | 'recognize'>): MessageRecognizer {
  /** By the hash of the prefix that ends with these messages. NaN for a message that must be read again. */
  const known = new LRUCache<string, Float64Array>({
    maxSize: MAX_BYTES,
    sizeCalculation: (fingerprints) => BYTES_PER_ENTRY + fingerprints.byteLength,
  })
  return {
    recognize(prompt) {
      for (const { hash, messages } of blocksOf(prompt)) {
        for (const [index, fingerprint] of known.get(hash)?.entries() ?? []) {
          const message = messages[index]
          if (message !== undefined && !Number.isNaN(fingerprint)) meter.recognize(message, fingerprint)
        }
      }
    },
    remember(prompt) {
      for (const { hash, messages } of blocksOf(prompt)) {
        if (known.has(hash)) continue
        const fingerprintOf = (message: Message): number =>
          (isHashed(message) ? meter.fingerprintOf(message) : undefined) ?? NaN
        known.set(hash, Float64Array.from(messages, fingerprintOf))
      }
    },
  }
}

interface Block {
  readonly hash: string
  readonly messages: readonly Message[]
}

/** The messages after the last checkpoint are in no block. */
function blocksOf(prompt: Prompt): readonly Block[] {
  const checkpoints = messageHashesOf(prompt).checkpoints()
  return checkpoints.map(({ count, hash }, index) => {
    return { hash, messages: prompt.messages.slice(checkpoints[index - 1]?.count ?? 0, count) }
  })
}

/** True if messages with the same hash have the same text. */
function isHashed({ parts }: Message): boolean {
  return parts.every(isHashedPart)
}

function isHashedPart(part: Part): boolean {
  if (part.type === 'tool-result') return part.content.every(isHashedPart)
  return part.type !== 'opaque' && (part.type !== 'thinking' || part.redacted !== true)
}
