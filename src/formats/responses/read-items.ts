import { asArray, asObject, asString, type Json, type JsonObject } from '../../core/json.ts'
import type { Message, Native, Part, Role } from '../../core/prompt.ts'
import { arrayAt, badField, isAbsent, objectAt, stringAt } from '../fields.ts'
import { nativeOfItems } from './items.ts'
import { readContent } from './read-content.ts'
import { openThought } from './seal.ts'

const MOST_ITEMS = 10_000

/** A Map, because a role may be called `constructor`. */
const ROLES: ReadonlyMap<Json | undefined, Role> = new Map([
  ['system', 'system'],
  ['developer', 'system'],
  ['user', 'user'],
  ['assistant', 'assistant'],
])

interface ReadItem {
  readonly role: Role
  readonly parts: readonly Part[]
  readonly item: JsonObject
}

/** The caller's input as messages. What an answer was made of (thoughts, words, calls) becomes one message again. */
export function readInput(input: Json | undefined): readonly Message[] {
  if (typeof input === 'string') {
    const native = nativeOfItems([{ role: 'user', content: input }])
    return [{ role: 'user', parts: [{ type: 'text', text: input }], native }]
  }
  if (!Array.isArray(input)) throw badField('input', input, 'a string or an array of items')
  const items = arrayAt(input, 'input', MOST_ITEMS).map((item, index) => readItem(item, `input[${index}]`))
  return groupsOf(items).map((group) => ({
    role: group[0].role,
    parts: group.flatMap((one) => one.parts),
    native: nativeOfItems(group.map((one) => one.item)),
  }))
}

type Group = [ReadItem, ...ReadItem[]]

function groupsOf(items: readonly ReadItem[]): readonly Group[] {
  const groups: Group[] = []
  for (const item of items) {
    const group = groups.at(-1)
    if (group !== undefined && belongsTo(group, item)) group.push(item)
    else groups.push([item])
  }
  return groups
}

/** Words after words are another answer; words after a call still stand before the call's result. */
function belongsTo(group: Group, { role, parts }: ReadItem): boolean {
  if (role !== 'assistant' || group[0].role !== 'assistant') return false
  const holds = (type: Part['type']): boolean => group.some((one) => one.parts.some((part) => part.type === type))
  return !parts.some((part) => part.type === 'text') || !holds('text') || holds('tool-call')
}

function readItem(value: Json, param: string): ReadItem {
  const item = objectAt(value, param, 'an item: an object with a type or a role')
  const native: Native = { dialect: 'responses', value: item }
  const type = isAbsent(item['type']) ? 'message' : stringAt(item['type'], `${param}.type`)
  switch (type) {
    case 'message':
      return { role: roleOf(item, param), parts: readContent(item['content'], `${param}.content`), item }
    case 'function_call':
      return { role: 'assistant', parts: [readCall(item, native, param)], item }
    case 'function_call_output':
      return { role: 'tool', parts: [readResult(item, native, param)], item }
    case 'reasoning':
      return { role: 'assistant', parts: [readThought(item, native)], item }
    default:
      return { role: type.endsWith('_output') ? 'tool' : 'assistant', parts: [{ type: 'opaque', native }], item }
  }
}

function roleOf(item: JsonObject, param: string): Role {
  const role = ROLES.get(item['role'])
  if (role === undefined) throw badField(`${param}.role`, item['role'], 'user, assistant, system or developer')
  return role
}

function readCall(item: JsonObject, native: Native, param: string): Part {
  return {
    type: 'tool-call',
    id: stringAt(item['call_id'], `${param}.call_id`),
    name: stringAt(item['name'], `${param}.name`),
    input: stringAt(item['arguments'], `${param}.arguments`, 'the arguments as JSON text'),
    native,
  }
}

function readResult(item: JsonObject, native: Native, param: string): Part {
  return {
    type: 'tool-result',
    callId: stringAt(item['call_id'], `${param}.call_id`),
    content: readContent(item['output'], `${param}.output`),
    failed: false,
    native,
  }
}

/** The thoughts of an item: in full where it holds them, else their summary. Read loosely, for answers too. */
export function readThought(item: JsonObject, native: Native): Part {
  const { signature, redacted } = openThought(item['encrypted_content'])
  if (redacted !== undefined) return { type: 'thinking', text: redacted, redacted: true, native }
  const thoughts = asArray(item['content']).length > 0 ? item['content'] : item['summary']
  const text = asArray(thoughts)
    .map((piece) => asString(asObject(piece)?.['text']) ?? '')
    .join('\n')
  return { type: 'thinking', text, ...(signature === undefined ? {} : { signature }), native }
}
