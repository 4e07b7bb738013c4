import { LRUCache } from 'lru-cache'
import { type Store, quotaOf } from '../core/store.ts'
import { asArray, isJsonObject, type Json } from '../core/json.ts'
import { textOfMessage } from '../core/prompt.ts'
import type { Conversation } from './conversation.ts'

/**
 * State of the tiers between the turns of a conversation, separate for each owner. A loss costs money, never an answer.
 */
export interface ConversationMemory {
  recall(owner: string, key: string): Promise<string | undefined>
  /** Like `recall`, but only from the memory of this process. */
  peek(owner: string, key: string): string | undefined
  remember(owner: string, key: string, value: string): Promise<void>
}

/** One hour, like the transcript of tier 2. */
const LIFE_MS = 60 * 60 * 1000
const IN_PROCESS_BYTES = 32 * 1024 * 1024
const MAX_VALUE = 256 * 1024

interface MemoryOptions {
  readonly store: Pick<Store, 'get' | 'set'>
  /** Milliseconds since 1970. */
  readonly now: () => number
}

/** Returns a memory in the store, behind a bounded cache. No method rejects. */
export function createMemory({ store, now }: MemoryOptions): ConversationMemory {
  const near = new LRUCache<string, { readonly value: string; readonly until: number }>({
    maxSize: IN_PROCESS_BYTES,
    sizeCalculation: (entry, key) => 2 * (entry.value.length + key.length) + 64,
  })
  const keyOf = (owner: string, key: string): string => `savings:${owner}:${key}`

  const peek = (owner: string, key: string): string | undefined => {
    const entry = near.get(keyOf(owner, key))
    return entry !== undefined && entry.until > now() ? entry.value : undefined
  }
  return {
    peek,
    async recall(owner, key) {
      const known = peek(owner, key)
      if (known !== undefined) return known
      try {
        const value = await store.get(keyOf(owner, key))
        if (value !== undefined) near.set(keyOf(owner, key), { value, until: now() + LIFE_MS })
        return value
      } catch {
        return undefined
      }
    },
    async remember(owner, key, value) {
      if (value.length > MAX_VALUE) return
      near.set(keyOf(owner, key), { value, until: now() + LIFE_MS })
      try {
        await store.set(keyOf(owner, key), value, { ttlMs: LIFE_MS, quota: quotaOf('savings', owner) })
      } catch {
        // A failed write costs another process a computation, not an answer.
      }
    },
  }
}

/**
 * Number of shorter prefixes to look up. A turn adds a question and an answer, or a step of a loop; clients sometimes
 * add several at once.
 */
const STEPS_BACK = 4

export async function rememberAt(
  memory: ConversationMemory,
  owner: string,
  conversation: Conversation,
  entry: { kind: string; value: string },
): Promise<void> {
  await memory.remember(owner, `${entry.kind}:${conversation.chain.at(conversation.segments.length)}`, entry.value)
}

/** Returns what was remembered for this conversation or for one a few segments shorter. */
export function recallAt(
  memory: ConversationMemory,
  owner: string,
  conversation: Conversation,
  kind: string,
): Promise<string | undefined> {
  return recallBetween(memory, owner, conversation, { kind, least: 0 })
}

/** Returns what was remembered on an earlier turn, excluding an earlier attempt of this request. */
export function recallEarlier(
  memory: ConversationMemory,
  owner: string,
  conversation: Conversation,
  kind: string,
): Promise<string | undefined> {
  return recallBetween(memory, owner, conversation, { kind, least: 1 })
}

async function recallBetween(
  memory: ConversationMemory,
  owner: string,
  conversation: Conversation,
  { kind, least }: { readonly kind: string; readonly least: number },
): Promise<string | undefined> {
  const counts = Array.from(
    { length: STEPS_BACK + 1 - least },
    (_, back) => conversation.segments.length - least - back,
  ).filter((count) => count > 0)
  const found = await Promise.all(
    counts.map(async (count) => memory.recall(owner, `${kind}:${conversation.chain.at(count)}`)),
  )
  return found.find((value) => value !== undefined)
}

/** One section of a stored conversation. */
interface Section {
  readonly role: string
  readonly text: string
}

/**
 * Whole conversations, kept per owner for one hour. Each turn stores the new sections and a pointer to the previous
 * page, so that a conversation is stored once, regardless of its length.
 */
interface Transcripts {
  /** Stores the new sections. Returns the name under which the whole conversation can be read. */
  store(owner: string, conversation: Conversation): Promise<string>
  /** Returns the sections of a stored conversation that have not expired, oldest first. */
  read(owner: string, name: string): Promise<readonly Section[]>
}

const SECTIONS_PER_PAGE = 32
const MAX_PAGES = 10_000

export function createTranscripts(memory: ConversationMemory): Transcripts {
  return {
    async store(owner, conversation) {
      const total = conversation.turns.old.length
      let before = ''
      for (let from = 0; from < total; from += SECTIONS_PER_PAGE) {
        const to = Math.min(total, from + SECTIONS_PER_PAGE)
        const name = conversation.chain.at(to)
        if (memory.peek(owner, `page:${name}`) === undefined) {
          const sections = conversation.turns.old
            .slice(from, to)
            .flatMap((segment) =>
              segment.messages.map((message): Section => ({ role: message.role, text: textOfMessage(message) })),
            )
          await memory.remember(owner, `page:${name}`, JSON.stringify({ before, sections }))
        }
        before = name
      }
      return before
    },
    async read(owner, name) {
      const pages: Section[][] = []
      for (let at = name; at !== '' && pages.length < MAX_PAGES;) {
        const page = parsePage(await memory.recall(owner, `page:${at}`))
        if (page === undefined) break
        pages.push(page.sections)
        at = page.before
      }
      return pages.toReversed().flat()
    },
  }
}

function parsePage(text: string | undefined): { readonly before: string; readonly sections: Section[] } | undefined {
  if (text === undefined) return undefined
  const page = JSON.parse(text) as Json
  if (!isJsonObject(page) || typeof page['before'] !== 'string') return undefined
  const sections = asArray(page['sections']).flatMap((section) => {
    if (!isJsonObject(section)) return []
    const { role, text: words } = section
    return typeof role === 'string' && typeof words === 'string' ? [{ role, text: words }] : []
  })
  return { before: page['before'], sections }
}
