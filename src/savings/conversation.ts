import {
  hasOnlyToolResults,
  lastUserIndex,
  type Message,
  type Part,
  type Prompt,
  type Source,
  type TextSource,
} from '../core/prompt.ts'
import { digestText } from '../core/cache.ts'
import { sha256 } from '#hash'
import { LRUCache } from 'lru-cache'
import { quotaOf, type Store } from '../core/store.ts'

/**
 * A user message, an answer, or an answer with its tool calls and their results. Segments are the units of selection,
 * so a tool call is never separated from its result.
 */
export interface Segment {
  readonly kind: 'user' | 'assistant' | 'tool-use'
  readonly messages: readonly Message[]
  readonly indexes: readonly number[]
}

/** Segments, oldest first. System messages belong to no segment, because they are never cut. */
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
  const questionIndex = lastUserIndex(messages)
  const liveIndex = segments.findLastIndex(({ indexes }) => questionIndex === -1 || (indexes[0] ?? 0) <= questionIndex)
  const start = Math.max(0, liveIndex)
  return { old: segments.slice(0, start), live: segments.slice(start) }
}

function segmentsOf(messages: readonly Message[]): Segment[] {
  const segments: { kind: Segment['kind']; messages: Message[]; indexes: number[] }[] = []
  for (const [index, message] of messages.entries()) {
    if (message.role === 'system') continue
    const last = segments.at(-1)
    if (last?.kind === 'tool-use' && hasToolResults(message)) {
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
  if (message.parts.some((part) => part.type === 'tool-call')) return 'tool-use'
  if (message.role === 'user' && !hasOnlyToolResults(message)) return 'user'
  return message.role === 'assistant' ? 'assistant' : 'tool-use'
}

export interface Conversation {
  readonly prompt: Prompt
  readonly system: readonly Message[]
  readonly turns: SplitConversation
  readonly segments: readonly Segment[]
  readonly prefixHashes: PrefixHashes
}

const conversations = new WeakMap<Prompt, Conversation>()

/** Returns the conversation of a prompt. Cached per prompt, because each tier of a request needs it. */
export function conversationOf(prompt: Prompt): Conversation {
  const cached = conversations.get(prompt)
  if (cached !== undefined) return cached
  const turns = splitConversation(prompt.messages)
  const segments = [...turns.old, ...turns.live]
  const system = prompt.messages.filter((message) => message.role === 'system')
  const conversation = { prompt, system, turns, segments, prefixHashes: createPrefixHashes(system, segments) }
  conversations.set(prompt, conversation)
  return conversation
}

/** SHA-256 hashes of a conversation's prefixes. A prefix has the same hash on every turn. */
export interface PrefixHashes {
  /** Returns the hash of the system prompt and the first `count` segments, in 64 hex digits. */
  at(count: number): string
}

const CHECKPOINT_LENGTH = 8000

/** Hashes each prefix from the preceding checkpoint, so the total cost is linear in the length of the conversation. */
export function createPrefixHashes(
  system: readonly Message[],
  segments: readonly Pick<Segment, 'messages'>[],
): PrefixHashes {
  const texts = segments.map((segment) => segment.messages.map(hashInputOfMessage).join('\u0001'))
  const checkpoints: { readonly count: number; readonly hash: string }[] = []

  const build = (): void => {
    let hash = sha256(system.map(hashInputOfMessage).join('\u0001'))
    checkpoints.push({ count: 0, hash })
    let from = 0
    let length = 0
    for (const [index, text] of texts.entries()) {
      length += text.length
      if (length < CHECKPOINT_LENGTH) continue
      hash = extendHash(hash, texts.slice(from, index + 1))
      from = index + 1
      checkpoints.push({ count: from, hash })
      length = 0
    }
  }

  return {
    at(count) {
      if (checkpoints.length === 0) build()
      const last = checkpoints.findLast((checkpoint) => checkpoint.count <= count)
      if (last === undefined) return ''
      return last.count === count ? last.hash : extendHash(last.hash, texts.slice(last.count, count))
    },
  }
}

function extendHash(hash: string, texts: readonly string[]): string {
  return sha256(`${hash}\u0002${texts.join('\u0002')}`)
}

/** Returns the content that a model receives from a message. */
function hashInputOfMessage(message: Message): string {
  return `${message.role}\u0003${message.parts.map(hashInputOfPart).join('\u0003')}`
}

function hashInputOfPart(part: Part): string {
  switch (part.type) {
    case 'text':
    case 'thinking':
      return `${part.type}\u0004${part.text}`
    case 'image':
    case 'document':
      return `${part.type}\u0004${hashInputOfSource(part.source)}`
    case 'tool-call':
      return `call\u0004${part.id}\u0004${part.name}\u0004${part.input}`
    case 'tool-result':
      return `result\u0004${part.callId}\u0004${part.content.map(hashInputOfPart).join('\u0005')}`
    case 'opaque':
      return `opaque\u0004${JSON.stringify(part.native.value)}`
  }
}

function hashInputOfSource(source: Source | TextSource): string {
  switch (source.type) {
    case 'base64':
      return digestText(source, source.data, sha256)
    case 'url':
      return source.url
    case 'file':
      return source.id
    case 'text':
      return source.text
  }
}

/** State between turns, separate for each owner. A lost value may cost money, but never fails a request. */
export interface ConversationMemory {
  recall(owner: string, key: string): Promise<string | undefined>
  /** Like `recall`, but reads only the cache of this process. */
  peek(owner: string, key: string): string | undefined
  remember(owner: string, key: string, value: string): Promise<void>
}

const TTL_MS = 60 * 60 * 1000
const MAX_CACHED_BYTES = 32 * 1024 * 1024
const MAX_VALUE_LENGTH = 256 * 1024

/**
 * Creates a memory backed by the store and a cache in this process. Values expire after one hour. No method rejects.
 */
export function createMemory({
  store,
  now,
}: {
  readonly store: Pick<Store, 'get' | 'set'>
  readonly now: () => number
}): ConversationMemory {
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
      const cached = peek(owner, key)
      if (cached !== undefined) return cached
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

/**
 * Maximum number of segments added since a value was stored. A turn usually adds two, but clients may add several turns.
 */
const MAX_ADDED_SEGMENTS = 4

interface OwnedPrompt {
  readonly owner: string
  readonly prompt: Prompt
}

export async function rememberLatest(
  memory: ConversationMemory,
  { owner, prompt }: OwnedPrompt,
  kind: string,
  value: string,
): Promise<void> {
  const { prefixHashes, segments } = conversationOf(prompt)
  await memory.remember(owner, `${kind}:${prefixHashes.at(segments.length)}`, value)
}

/**
 * Returns the value for this conversation or, if there is none, for its longest recent prefix that has one. With
 * `minAdded` 1, ignores the value of an earlier attempt of this request.
 */
export async function recallLatest(
  memory: ConversationMemory,
  { owner, prompt }: OwnedPrompt,
  kind: string,
  minAdded = 0,
): Promise<string | undefined> {
  const { prefixHashes, segments } = conversationOf(prompt)
  const max = segments.length - minAdded
  const counts = Array.from({ length: MAX_ADDED_SEGMENTS + 1 - minAdded }, (_, index) => max - index)
  const values = await Promise.all(
    counts.filter((count) => count > 0).map((count) => memory.recall(owner, `${kind}:${prefixHashes.at(count)}`)),
  )
  return values.find((value) => value !== undefined)
}
