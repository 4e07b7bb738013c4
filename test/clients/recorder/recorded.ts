import { readdirSync, readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { asArray, asObject, isJsonObject, type Json, type JsonObject } from '../../../src/core/json.ts'
import type { Dialect } from '../../../src/core/prompt.ts'
import { prose } from '../../plugins/savings/conversation.ts'
import { OUTPUT } from './vendor.ts'

/** A session as its client sent it, in one request: `record.ts` writes them. */
export interface RecordedSession {
  readonly client: string
  readonly path: string
  readonly dialect: Dialect
  readonly body: JsonObject
}

const folder = fileURLToPath(new URL('../recorded/', import.meta.url))

export function recordedSessions(): readonly RecordedSession[] {
  return readdirSync(folder).map((file) => {
    const { client, path, body } = asObject(JSON.parse(readFileSync(`${folder}${file}`, 'utf8'))) ?? {}
    return sessionOf(String(client), String(path), expand(asObject(body) ?? {}))
  })
}

export function sessionOf(client: string, path: string, body: JsonObject): RecordedSession {
  const dialect = path.includes('/messages') ? 'messages' : path.includes('/responses') ? 'responses' : 'chat'
  return { client, path, dialect, body }
}

/** Longer texts, such as the instructions of an agent, are recorded by their length alone. */
const LONGEST_TEXT = 100
const ABBREVIATED = /^‹(\d+) characters›$/
const FILLER = 'The agent has instructions of this length. '
const RANDOM_ID = /[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12,}/g

/** Replaces long texts by their lengths, and ids of the machine. */
export function abbreviate(body: JsonObject): JsonObject {
  return mapTexts(body, (text) => {
    const isOurs = text.includes(OUTPUT) || text.startsWith('{')
    if (text.length > LONGEST_TEXT && !isOurs) return `‹${text.length} characters›`
    return text.replaceAll(/[^ "]*agent-under-test-\w+/g, '/home/user').replaceAll(RANDOM_ID, 'id')
  })
}

function expand(body: JsonObject): JsonObject {
  return mapTexts(body, (text) => {
    const length = Number(ABBREVIATED.exec(text)?.[1] ?? 0)
    return length === 0 ? text : FILLER.repeat(Math.ceil(length / FILLER.length)).slice(0, length)
  })
}

type MapText = (text: string, name: string) => string

function mapTexts(body: JsonObject, map: MapText): JsonObject {
  const visit = (value: Json, name: string): Json => {
    if (typeof value === 'string') return map(value, name)
    if (Array.isArray(value)) return value.map((inner: Json) => visit(inner, name))
    return isJsonObject(value) ? visitFields(value) : value
  }
  const visitFields = (value: JsonObject): JsonObject =>
    Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, visit(inner ?? null, name)]))
  return visitFields(body)
}

/** A result of a tool has about 750 tokens. */
const RESULT_WORDS = 400
const ID_FIELDS: ReadonlySet<string> = new Set(['id', 'call_id', 'tool_use_id', 'tool_call_id', 'encrypted_content'])
/** Written by the model, so that they stay short. */
const CALL_FIELDS: ReadonlySet<string> = new Set(['input', 'arguments', 'command'])

/**
 * A long session: the turns of a recorded one, repeated `repeats` times with other ids and long results. Returns the
 * bodies of the requests of its last turn, oldest first: one after the question, and one after the results of each step.
 */
export function longSession({ dialect, body }: RecordedSession, repeats: number): readonly JsonObject[] {
  const field = dialect === 'responses' ? 'input' : 'messages'
  const items = asArray(body[field]).filter(isJsonObject)
  const start = items.findIndex(isQuestion)
  const lastQuestion = items.findLastIndex(isQuestion)
  const turns = items.slice(start)
  const earlier = Array.from({ length: repeats }, (_, at) => [
    ...renew(at === 0 ? turns : turns.filter(({ role }) => !isInstruction(role)), at, { isLast: false }),
    ...finalResponse(dialect),
  ]).flat()
  const last = renew(items.slice(lastQuestion), repeats, { isLast: true })
  const ends = last.flatMap((item, at) => (at > 0 && isResponded(last[at - 1]) && isResponse(item) ? [at] : []))
  return [...ends, last.length].map((end) => ({
    ...body,
    [field]: [...items.slice(0, start), ...earlier, ...last.slice(0, end)],
  }))
}

const isInstruction = (role: Json | undefined): boolean => role === 'system' || role === 'developer'
const kindOf = ({ type, role }: JsonObject): string => String(role ?? type)

function isQuestion(item: JsonObject): boolean {
  return item['role'] === 'user' && asArray(item['content']).every((part) => asObject(part)?.['type'] !== 'tool_result')
}

/** The question, the result of a tool, or an instruction after them. */
const isResponded = (item: JsonObject | undefined): boolean =>
  item !== undefined && /^(?:user|tool|system|.*_output)$/.test(kindOf(item))
const isResponse = (item: JsonObject): boolean => /^(?:assistant|reasoning|.*_call)$/.test(kindOf(item))

function finalResponse(dialect: Dialect): readonly JsonObject[] {
  const text = 'Both are done.'
  if (dialect === 'chat') return [{ role: 'assistant', content: text }]
  if (dialect === 'messages') return [{ role: 'assistant', content: [{ type: 'text', text }] }]
  return [{ type: 'message', role: 'assistant', content: [{ type: 'output_text', text, annotations: [] }] }]
}

/** Markers stay in the last turn only, because a vendor allows four of them. */
function renew(items: readonly JsonObject[], repeat: number, { isLast }: { isLast: boolean }): readonly JsonObject[] {
  let results = 0
  const visit = (value: Json, name: string): Json => {
    if (typeof value === 'string') {
      if (ID_FIELDS.has(name)) return `${value}_${repeat}`
      const said = value.replace(/\bstep (\d+)/, `step $1 of ${repeat}`)
      return said.replace(OUTPUT, () => `${OUTPUT} ${prose(repeat * 50 + results++, RESULT_WORDS)}`)
    }
    if (Array.isArray(value)) return value.map((inner: Json) => visit(inner, name))
    if (!isJsonObject(value)) return value
    return Object.fromEntries(
      Object.entries(value)
        .filter(([field]) => isLast || field !== 'cache_control')
        .map(([field, inner]) => [field, CALL_FIELDS.has(field) ? inner : visit(inner ?? null, field)]),
    )
  }
  return items.map((item) => asObject(visit(item, '')) ?? {})
}
