import { nameSet } from '../fields.ts'
import { asArray, asObject, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Message, Part, Prompt } from '../../core/prompt.ts'
import { isUnset, type UnsupportedFields, type UnsupportedField, type SourceFormat } from '../translation.ts'
import { itemsOf } from './items.ts'

/** Fields whose meaning is part of the canonical prompt, or that concern only the gateway and the caller. */
const CARRIED: ReadonlySet<string> = nameSet(
  'model input instructions max_output_tokens temperature top_p stream stream_options tools tool_choice ' +
    'parallel_tool_calls text reasoning user safety_identifier store metadata client_metadata',
)

/** Fields that only tune the answer. */
const HINTS: ReadonlySet<string> = nameSet(
  'service_tier prompt_cache_key prompt_cache_retention prompt_cache_options context_management max_tool_calls',
)

/** Fields that can be omitted only when they have a value that changes nothing. All other fields are refused. */
const HARMLESS: ReadonlyMap<string, (value: Json) => boolean> = new Map([
  ['top_logprobs', (value: Json) => value === 0],
  ['truncation', (value: Json) => value === 'disabled' || value === 'auto'],
  ['include', (value: Json) => !asArray(value).includes('message.output_text.logprobs')],
])

/** Fields that refer to a conversation stored by the vendor. */
const ESSENTIAL: ReadonlySet<string> = new Set(['previous_response_id', 'conversation', 'prompt'])

/** Fields of items and content parts that are carried or have no effect, by type. */
const ITEM_FIELDS: ReadonlyMap<string, readonly string[]> = new Map([
  ['message', ['type', 'role', 'content', 'id', 'status', 'phase']],
  ['function_call', ['type', 'id', 'call_id', 'name', 'arguments', 'status', 'caller']],
  ['function_call_output', ['type', 'id', 'call_id', 'output', 'status', 'caller']],
  ['input_text', ['type', 'text', 'prompt_cache_breakpoint']],
  ['output_text', ['type', 'text', 'annotations', 'logprobs', 'parsed']],
  ['refusal', ['type', 'refusal', 'parsed']],
  ['input_image', ['type', 'image_url', 'file_id', 'detail', 'prompt_cache_breakpoint']],
  ['input_file', ['type', 'file_data', 'file_id', 'file_url', 'filename', 'detail', 'prompt_cache_breakpoint']],
])

/** The responses format as the source of a translation. */
export const responsesSource: SourceFormat = {
  unsupportedFields: unsupportedFields,
  pathOf,
  names: { shape: 'text.format', effort: 'reasoning.effort', stop: 'stop' },
}

function unsupportedFields(prompt: Prompt): UnsupportedFields {
  const body = prompt.native.value
  const hints = Object.keys(body).filter((name) => HINTS.has(name) && !isUnset(body[name]))
  const inner = [...innerFields(body, 'text', 'format'), ...innerFields(body, 'reasoning', 'effort')]
  const truncates = body['truncation'] === 'auto' ? ['truncation'] : []
  return { hints: [...hints, ...inner, ...truncates], required: requiredFields(prompt) }
}

function innerFields(body: JsonObject, field: string, carried: string): readonly string[] {
  const value = asObject(body[field]) ?? {}
  const names = Object.keys(value).filter((name) => name !== carried && !isUnset(value[name]))
  return names.map((name) => `${field}.${name}`)
}

/** Several items of an answer are one message of the prompt. */
function pathOf(prompt: Prompt, index: number): string {
  const before = prompt.messages.slice(0, index)
  const shift = typeof prompt.native.value['instructions'] === 'string' ? 1 : 0
  if (index < shift) return 'instructions'
  if (typeof prompt.native.value['input'] === 'string') return 'input'
  return `input[${before.reduce((sum, message) => sum + itemsOf(message).length, 0) - shift}]`
}

function* requiredFields(prompt: Prompt): Generator<UnsupportedField, void, undefined> {
  const { native, settings } = prompt
  const body = native.value
  for (const [name, value] of Object.entries(body)) {
    if (value === undefined || isUnset(value) || CARRIED.has(name) || HINTS.has(name)) continue
    if (HARMLESS.get(name)?.(value) === true) continue
    yield { param: name.slice(0, MAX_NAME_LENGTH), what: 'this field', isEssential: ESSENTIAL.has(name) }
  }
  const choice = body['tool_choice']
  if (choice !== undefined && choice !== null && settings.toolChoice === undefined) {
    yield { param: 'tool_choice', what: 'a choice other than auto, none, required or one function' }
  }
  const format = asObject(asObject(body['text'])?.['format'])
  if (format !== undefined && format['type'] !== 'text' && settings.shape === undefined) {
    yield { param: 'text.format', what: 'a format other than text, json_object or json_schema' }
  }
  for (const [index, message] of prompt.messages.entries()) yield* unsupportedInMessage(message, pathOf(prompt, index))
}

const MAX_NAME_LENGTH = 100

function* unsupportedInMessage(message: Message, path: string): Generator<UnsupportedField, void, undefined> {
  for (const item of itemsOf(message)) yield* unknownFields(item, path)
  for (const part of message.parts) yield* unsupportedInPart(part, path)
}

function* unsupportedInPart(part: Part, path: string): Generator<UnsupportedField, void, undefined> {
  if (part.native?.dialect !== 'responses') return
  if (part.type === 'opaque') {
    yield { param: path, what: `an item or a part of type ${String(part.native.value['type'])}` }
  }
  yield* unknownFields(part.native.value, path)
  if (part.type === 'tool-result') for (const inner of part.content) yield* unsupportedInPart(inner, path)
}

function* unknownFields(value: JsonObject, path: string): Generator<UnsupportedField, void, undefined> {
  const type = value['type'] ?? 'message'
  const known = typeof type === 'string' ? ITEM_FIELDS.get(type) : undefined
  const unknown = known && Object.keys(value).find((name) => !known.includes(name) && !isUnsetOrEmpty(value[name]))
  if (unknown !== undefined) yield { param: `${path}.${unknown.slice(0, MAX_NAME_LENGTH)}`, what: 'this field' }
}

function isUnsetOrEmpty(value: Json | undefined): boolean {
  return isUnset(value) || (isJsonObject(value) && Object.keys(value).length === 0)
}
