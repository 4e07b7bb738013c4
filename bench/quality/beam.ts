import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { asArray, asObject, parseJson } from '../../src/core/json.ts'
import type { Case, ChatMessage } from './data.ts'

const SYSTEM: ChatMessage = { role: 'system', content: 'You answer from the conversation above.' }

/** A question about a whole chat. */
export interface BeamCase extends Case {
  /** The ability that the question tests, such as `summarization`. */
  readonly kind: string
  /** Number of the chat, which splits the cases by source. */
  readonly chat: number
}

/**
 * Reads the chats of BEAM (github.com/mohammadtavakoli78/BEAM, folder `chats/100K`). Questions without evidence are left
 * out.
 */
export function readBeam(folder: string): readonly BeamCase[] {
  const numbers = readdirSync(folder).filter((name) => existsSync(join(folder, name, 'chat.json')))
  return numbers
    .map(Number)
    .toSorted((a, b) => a - b)
    .flatMap((chat) => readChat(folder, chat))
}

function readChat(folder: string, chat: number): BeamCase[] {
  const read = (path: string): unknown => parseJson(readFileSync(join(folder, String(chat), path), 'utf8'))
  const messages: ChatMessage[] = []
  const indexById = new Map<unknown, number>()
  collectMessages(read('chat.json'), messages, indexById)
  const questions = Object.entries(asObject(read('probing_questions/probing_questions.json')) ?? {})
  return questions.flatMap(([kind, list]) =>
    asArray(list).flatMap((item, index) => {
      const { question, source_chat_ids: sources } = asObject(item) ?? {}
      const indexes = new Set(numbersIn(sources).flatMap((id) => indexById.get(id) ?? []))
      if (typeof question !== 'string' || indexes.size === 0) return []
      const evidence = [...indexes].map((at) => messages[at]?.content ?? '')
      const asked: ChatMessage = { role: 'user', content: question }
      return [
        { id: `${chat}-${kind}-${index}`, kind, chat, messages: [SYSTEM, ...messages, asked], evidence, needed: [] },
      ]
    }),
  )
}

/** Messages are nested in batches and turns. */
function collectMessages(value: unknown, messages: ChatMessage[], indexById: Map<unknown, number>): void {
  if (Array.isArray(value)) {
    for (const item of value) collectMessages(item, messages, indexById)
    return
  }
  const { role, content, id, ...others } = asObject(value) ?? {}
  if ((role === 'user' || role === 'assistant') && typeof content === 'string') {
    if (!indexById.has(id)) indexById.set(id, messages.length)
    messages.push({ role, content })
  } else for (const other of Object.values(others)) collectMessages(other, messages, indexById)
}

function numbersIn(value: unknown): number[] {
  if (typeof value === 'number') return [value]
  if (typeof value !== 'object' || value === null) return []
  return Object.values(value).flatMap(numbersIn)
}
