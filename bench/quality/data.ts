import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** A message of a data file, in the chat format. */
export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool'
  readonly content: string | null
  readonly tool_calls?: readonly {
    readonly id: string
    readonly function: { readonly name: string; readonly arguments: string }
  }[]
  readonly tool_call_id?: string
}

export interface Conversation {
  readonly id: string
  readonly messages: readonly ChatMessage[]
}

/** A request and the content that its response needs. */
export interface Case {
  readonly id: string
  readonly messages: readonly ChatMessage[]
  /** Texts that contain the evidence. */
  readonly evidence: readonly string[]
  /** For each needed identifier, the lines that contain it. One of them is enough. */
  readonly needed: readonly (readonly string[])[]
}

export interface CaseLine {
  readonly id: string
  readonly conv: string
  readonly upto?: number
  readonly question?: string
  readonly answer?: string
  readonly append?: readonly ChatMessage[]
  readonly evidence?: readonly number[]
  readonly atoms?: readonly string[]
}

const SYSTEM: ChatMessage = {
  role: 'system',
  content:
    'You answer from the conversation above and say so when it does not hold the answer. Metric units, friendly tone.',
}

const MAX_LINES = 30
const MIN_LINE_LENGTH = 15
const MAX_LINE_LENGTH = 300

function readLines<line>(file: string): line[] {
  return readFileSync(file, 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as line)
}

export function loadConversations(root: string, kind: string): Conversation[] {
  return readLines<Conversation>(join(root, kind, 'conv-public.jsonl'))
}

/** Returns the lines of the case file of a data set. */
export function readCaseLines(root: string, kind: string): readonly CaseLine[] {
  return readLines<CaseLine>(join(root, kind, 'cases-public.jsonl'))
}

/** Yields every `step`-th case of a data set. */
export function* loadCases(root: string, kind: string, step = 1): Generator<Case> {
  const conversations = new Map(loadConversations(root, kind).map((one) => [one.id, one.messages]))
  for (const [index, line] of readCaseLines(root, kind).entries()) {
    if (index % step !== 0) continue
    const all = conversations.get(line.conv) ?? []
    const past = line.upto === undefined ? all : all.slice(0, line.upto)
    const question: ChatMessage[] = line.question === undefined ? [] : [{ role: 'user', content: line.question }]
    yield {
      id: line.id,
      messages: [SYSTEM, ...past, ...(line.append ?? []), ...question],
      evidence: (line.evidence ?? []).map((at) => all[at]?.content ?? ''),
      needed: line.upto === undefined ? [] : neededLines(past, line.atoms ?? []),
    }
  }
}

/** Returns the lines with each identifier. */
export function neededLines(messages: readonly ChatMessage[], atoms: readonly string[]): string[][] {
  const texts = messages.map(textOfChat)
  return atoms.map((atom) => linesWith(texts, atom)).filter((lines) => lines.length > 0)
}

function linesWith(texts: readonly string[], atom: string): string[] {
  const wanted = atom.toLowerCase()
  const lines: string[] = []
  for (const text of texts) {
    if (!text.toLowerCase().includes(wanted)) continue
    for (const line of text.split('\n')) {
      if (line.length < MIN_LINE_LENGTH || !containsWord(line, wanted)) continue
      const at = line.toLowerCase().indexOf(wanted)
      lines.push(line.length > MAX_LINE_LENGTH ? line.slice(Math.max(0, at - 120), at + 180) : line.trim())
      if (lines.length === MAX_LINES) return lines
    }
  }
  return lines
}

/** Returns true if the text contains the identifier as a whole word. */
function containsWord(text: string, wanted: string): boolean {
  const lowerCase = text.toLowerCase()
  for (let at = lowerCase.indexOf(wanted); at !== -1; at = lowerCase.indexOf(wanted, at + 1)) {
    const around = (lowerCase[at - 1] ?? ' ') + (lowerCase[at + wanted.length] ?? ' ')
    if (!/[a-z0-9]/.test(around)) return true
  }
  return false
}

export function textOfChat(message: ChatMessage): string {
  const calls = (message.tool_calls ?? []).map((call) => `${call.function.name} ${call.function.arguments}`)
  return (message.content ?? '') + calls.join('\n')
}
