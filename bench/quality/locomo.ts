import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { ChatMessage } from './data.ts'
import type { Question } from './running-chats.ts'

interface Line {
  readonly speaker: string
  readonly dia_id: string
  readonly text: string
}

interface QuestionLine {
  readonly question: string
  readonly answer?: string | number
  readonly evidence: readonly string[]
}

interface LocomoFile {
  readonly speaker_a: string
  readonly qa: readonly QuestionLine[]
}

/** Turns that belong together, such as a session of a chat. */
export interface Session {
  readonly messages: readonly ChatMessage[]
}

export interface LocomoChat {
  readonly id: string
  readonly sessions: readonly Session[]
  readonly questions: readonly Question[]
}

/**
 * Reads the conversations of LoCoMo (github.com/snap-research/locomo, data/locomo10.zip, CC BY-NC 4.0): the first speaker is the
 * user, the second the assistant.
 */
export function readLocomo(folder: string): readonly LocomoChat[] {
  const files = readdirSync(folder).filter((name) => name.endsWith('.json'))
  return files.toSorted().map((name) => {
    const file = JSON.parse(readFileSync(join(folder, name), 'utf8')) as LocomoFile & Record<string, unknown>
    const texts = new Map<string, string>()
    const sessions: Session[] = []
    for (let number = 1; Array.isArray(file[`session_${number}`]); number++) {
      const lines = file[`session_${number}`] as readonly Line[]
      for (const { dia_id, text } of lines) texts.set(dia_id, text)
      const date = String(file[`session_${number}_date_time`] ?? '')
      sessions.push({ messages: toTurns(lines, file.speaker_a, date) })
    }
    const questions = file.qa.flatMap(({ question, answer: response, evidence }): Question[] => {
      const found = evidence.flatMap((id) => texts.get(id) ?? [])
      return response === undefined || found.length === 0 || found.length < evidence.length
        ? []
        : [{ text: question, evidence: found, response: String(response) }]
    })
    return { id: `locomo-${name.replace('.json', '')}`, sessions, questions }
  })
}

/** Joins consecutive lines of one speaker. A session starts with its date and a user message. */
function toTurns(lines: readonly Line[], user: string, date: string): readonly ChatMessage[] {
  const turns: { role: 'user' | 'assistant'; content: string }[] = [{ role: 'user', content: `Today is ${date}.` }]
  for (const { speaker, text } of lines) {
    const role = speaker === user ? 'user' : 'assistant'
    const last = turns.at(-1)
    if (last?.role === role) last.content += `\n${text}`
    else turns.push({ role, content: text })
  }
  if (turns.at(-1)?.role === 'user') turns.push({ role: 'assistant', content: 'Thanks for telling me!' })
  return turns
}
