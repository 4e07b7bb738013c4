import { asArray, isJsonObject, type Json } from '../core/json.ts'
import { textOfMessage } from '../core/prompt.ts'
import type { Talk } from './freeze.ts'
import type { Memory } from './memory.ts'

/** One section of a stored conversation. */
export interface Section {
  readonly role: string
  readonly text: string
}

/**
 * Whole conversations, kept for an hour under their owner, append only: each turn stores what is new and a pointer to
 * what was there, so that a conversation is stored once however long it goes on.
 */
export interface Transcripts {
  /** Stores what is not stored yet; answers the name under which the whole can be read. */
  store(owner: string, talk: Talk): Promise<string>
  /** The sections of a stored conversation, oldest first; those that were not forgotten. */
  read(owner: string, name: string): Promise<readonly Section[]>
}

const SECTIONS_PER_PAGE = 32
const MOST_PAGES = 10_000

export function createTranscripts(memory: Memory): Transcripts {
  return {
    async store(owner, talk) {
      const total = talk.turns.old.length
      let before = ''
      for (let from = 0; from < total; from += SECTIONS_PER_PAGE) {
        const to = Math.min(total, from + SECTIONS_PER_PAGE)
        const name = talk.chain.at(to)
        if (memory.glance(owner, `page:${name}`) === undefined) {
          const sections = talk.turns.old
            .slice(from, to)
            .flatMap((unit) =>
              unit.messages.map((message): Section => ({ role: message.role, text: textOfMessage(message) })),
            )
          await memory.remember(owner, `page:${name}`, JSON.stringify({ before, sections }))
        }
        before = name
      }
      return before
    },
    async read(owner, name) {
      const pages: Section[][] = []
      for (let at = name; at !== '' && pages.length < MOST_PAGES;) {
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
