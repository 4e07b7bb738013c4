import {
  hasOnlyToolResults,
  lastUserIndex,
  type Message,
  type Part,
  type Prompt,
  type Source,
  type TextSource,
} from '../core/prompt.ts'
import { digestOf } from '../core/digest.ts'
import { sha256 } from '#hash'
import { LRUCache } from 'lru-cache'
import { quotaOf, type Store } from '../core/store.ts'

/**
 * A user message, an answer, or an answer with its tool calls and their results. Segments are the units of selection,
 * so a tool call is never separated from its result.
 */
export interface Segment {
  readonly kind: 'user' | 'assistant' | 'exchange'
  readonly messages: readonly Message[]
  readonly indexes: readonly number[]
}

/** Segments, oldest first. System messages belong to none, because they are never cut. */
export interface SplitConversation {
  readonly old: readonly Segment[]
  /** The live turn: the segment with the last user message, and all later segments. */
  readonly live: readonly Segment[]
}

/**
 * Splits a conversation into segments. If the last user message also contains tool results, the live turn begins with
 * the tool calls. Without a user message, the live turn is the last segment.
 */
export function splitConversation(messages: readonly Message[]): SplitConversation {
  const segments = segmentsOf(messages)
  const question = lastUserIndex(messages)
  const last =
    question === -1 ? segments.length - 1 : segments.findLastIndex((segment) => (segment.indexes[0] ?? 0) <= question)
  const start = Math.max(0, last)
  return { old: segments.slice(0, start), live: segments.slice(start) }
}

function segmentsOf(messages: readonly Message[]): Segment[] {
  const segments: { kind: Segment['kind']; messages: Message[]; indexes: number[] }[] = []
  for (const [index, message] of messages.entries()) {
    if (message.role === 'system') continue
    const last = segments.at(-1)
    if (last?.kind === 'exchange' && hasToolResults(message)) {
      last.messages.push(message)
      last.indexes.push(index)
    } else segments.push({ kind: kindOf(message), messages: [message], indexes: [index] })
  }
  return segments
}

function hasToolResults(message: Message): boolean {
  return message.role !== 'assistant' && message.parts.some((part) => part.type === 'tool-result')
}

function kindOf(message: Message): Segment['kind'] {
  if (message.parts.some((part) => part.type === 'tool-call')) return 'exchange'
  if (message.role === 'user' && !hasOnlyToolResults(message)) return 'user'
  return message.role === 'assistant' ? 'assistant' : 'exchange'
}

export interface Conversation {
  readonly prompt: Prompt
  readonly turns: SplitConversation
  readonly segments: readonly Segment[]
  readonly chain: Chain
}

const conversations = new WeakMap<Prompt, Conversation>()

/** Cached per prompt, because each tier of a request calls it. */
export function conversationOf(prompt: Prompt): Conversation {
  const known = conversations.get(prompt)
  if (known !== undefined) return known
  const turns = splitConversation(prompt.messages)
  const segments = [...turns.old, ...turns.live]
  const system = prompt.messages.filter((message) => message.role === 'system')
  const conversation = { prompt, turns, segments, chain: createChain(system, segments) }
  conversations.set(prompt, conversation)
  return conversation
}

/** SHA-256 hashes of a conversation's prefixes. A prefix has the same hash on every turn. */
export interface Chain {
  /** Returns the hash of the system prompt and the first `segments` segments, in 64 hex digits. */
  at(segments: number): string
}

const CHECKPOINT_LENGTH = 8000

/** Hashes each prefix from the preceding checkpoint, so the total cost is linear in the length of the conversation. */
export function createChain(system: readonly Message[], segments: readonly Pick<Segment, 'messages'>[]): Chain {
  const texts = segments.map((segment) => segment.messages.map(hashedText).join('\u0001'))
  const checkpoints: { readonly segments: number; readonly hash: string }[] = []

  const build = (): void => {
    let hash = sha256(system.map(hashedText).join('\u0001'))
    checkpoints.push({ segments: 0, hash })
    let pending: string[] = []
    let length = 0
    for (const [index, text] of texts.entries()) {
      pending.push(text)
      length += text.length
      if (length < CHECKPOINT_LENGTH) continue
      hash = extendHash(hash, pending)
      checkpoints.push({ segments: index + 1, hash })
      pending = []
      length = 0
    }
  }

  return {
    at(count) {
      if (checkpoints.length === 0) build()
      const last = checkpoints.findLast((checkpoint) => checkpoint.segments <= count)
      if (last === undefined) return ''
      return last.segments === count ? last.hash : extendHash(last.hash, texts.slice(last.segments, count))
    },
  }
}

function extendHash(hash: string, texts: readonly string[]): string {
  return sha256(`${hash}\u0002${texts.join('\u0002')}`)
}

/** The content that a model receives from a message. */
function hashedText(message: Message): string {
  return `${message.role}\u0003${message.parts.map(hashedPart).join('\u0003')}`
}

function hashedPart(part: Part): string {
  switch (part.type) {
    case 'text':
    case 'thinking':
      return `${part.type}\u0004${part.text}`
    case 'image':
    case 'document':
      return `${part.type}\u0004${hashedSource(part.source)}`
    case 'tool-call':
      return `call\u0004${part.id}\u0004${part.name}\u0004${part.input}`
    case 'tool-result':
      return `result\u0004${part.callId}\u0004${part.content.map(hashedPart).join('\u0005')}`
    case 'opaque':
      return `opaque\u0004${JSON.stringify(part.native.value)}`
  }
}

function hashedSource(source: Source | TextSource): string {
  switch (source.type) {
    case 'base64':
      return digestOf(source, source.data, sha256)
    case 'url':
      return source.url
    case 'file':
      return source.id
    case 'text':
      return source.text
  }
}

/** State between turns, separate for each owner. Losing a value may cost money, but never fails a request. */
export interface ConversationMemory {
  recall(owner: string, key: string): Promise<string | undefined>
  /** Like `recall`, but reads only the cache of this process. */
  peek(owner: string, key: string): string | undefined
  remember(owner: string, key: string, value: string): Promise<void>
}

const TTL_MS = 60 * 60 * 1000
const MAX_CACHED_BYTES = 32 * 1024 * 1024
const MAX_VALUE_LENGTH = 256 * 1024

interface MemoryOptions {
  readonly store: Pick<Store, 'get' | 'set'>
  readonly now: () => number
}

/**
 * Creates a memory backed by the store and a cache in this process. Values expire after one hour. No method rejects.
 */
export function createMemory({ store, now }: MemoryOptions): ConversationMemory {
  const cache = new LRUCache<string, { readonly value: string; readonly expiresAt: number }>({
    maxSize: MAX_CACHED_BYTES,
    sizeCalculation: (entry, key) => 2 * (entry.value.length + key.length) + 64,
  })
  const keyOf = (owner: string, key: string): string => `savings:${owner}:${key}`

  const peek = (owner: string, key: string): string | undefined => {
    const entry = cache.get(keyOf(owner, key))
    return entry !== undefined && entry.expiresAt > now() ? entry.value : undefined
  }
  return {
    peek,
    async recall(owner, key) {
      const known = peek(owner, key)
      if (known !== undefined) return known
      try {
        const value = await store.get(keyOf(owner, key))
        if (value !== undefined) cache.set(keyOf(owner, key), { value, expiresAt: now() + TTL_MS })
        return value
      } catch {
        return undefined
      }
    },
    async remember(owner, key, value) {
      if (value.length > MAX_VALUE_LENGTH) return
      cache.set(keyOf(owner, key), { value, expiresAt: now() + TTL_MS })
      try {
        await store.set(keyOf(owner, key), value, { ttlMs: TTL_MS, quota: quotaOf('savings', owner) })
      } catch {
        // Ignored, because a missing value can be recomputed.
      }
    },
  }
}

/** Number of shorter prefixes to try. A turn usually adds two segments, but some clients add several turns at once. */
const MAX_ADDED_SEGMENTS = 4

interface OwnedPrompt {
  readonly owner: string
  readonly prompt: Prompt
}

export async function rememberAt(
  memory: ConversationMemory,
  { owner, prompt }: OwnedPrompt,
  kind: string,
  value: string,
): Promise<void> {
  const { chain, segments } = conversationOf(prompt)
  await memory.remember(owner, `${kind}:${chain.at(segments.length)}`, value)
}

/**
 * Returns the value for this conversation or, if there is none, for its longest recent prefix that has one. With
 * `minAdded` 1, ignores the value of an earlier attempt of this request.
 */
export async function recallAt(
  memory: ConversationMemory,
  { owner, prompt }: OwnedPrompt,
  kind: string,
  minAdded = 0,
): Promise<string | undefined> {
  const { chain, segments } = conversationOf(prompt)
  const counts = Array.from(
    { length: MAX_ADDED_SEGMENTS + 1 - minAdded },
    (_, at) => segments.length - minAdded - at,
  ).filter((count) => count > 0)
  const found = await Promise.all(counts.map((count) => memory.recall(owner, `${kind}:${chain.at(count)}`)))
  return found.find((value) => value !== undefined)
}
