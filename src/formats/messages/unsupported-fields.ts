import { nameSet } from '../fields.ts'
import { isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Part, Prompt } from '../../core/prompt.ts'
import { isUnset, type UnsupportedFields, type UnsupportedField, type SourceFormat } from '../translation.ts'

/** Fields of a message request whose meaning is part of the canonical prompt. */
const CARRIED: ReadonlySet<string> = nameSet(
  'model max_tokens messages system temperature top_p top_k stop_sequences stream tools tool_choice ' +
    'output_config output_format',
)

/** Fields that only tune the answer. */
const HINTS: ReadonlySet<string> = nameSet(
  'metadata thinking service_tier container cache_control context_management speed',
)
const OUTPUT_HINTS: ReadonlySet<string> = new Set(['effort', 'task_budget'])

const TOOL_FIELDS: ReadonlySet<string> = nameSet(
  'type name description input_schema cache_control strict input_examples eager_input_streaming',
)
const MESSAGE_FIELDS: ReadonlySet<string> = new Set(['role', 'content'])

/** Blocks whose meaning is part of the canonical prompt, with the fields that are carried or may be omitted. */
const BLOCK_FIELDS: ReadonlyMap<string, ReadonlySet<string>> = new Map([
  ['text', new Set(['type', 'text', 'cache_control', 'citations'])],
  ['image', new Set(['type', 'source', 'cache_control'])],
  ['document', new Set(['type', 'source', 'title', 'cache_control'])],
  ['tool_use', new Set(['type', 'id', 'name', 'input', 'cache_control', 'caller'])],
  ['tool_result', new Set(['type', 'tool_use_id', 'content', 'is_error', 'cache_control'])],
])

/** The message format as the source of a translation. */
export const messageSource: SourceFormat = {
  unsupportedFields: unsupportedFields,
  pathOf,
  names: { shape: 'output_config.format', effort: 'output_config.effort', stop: 'stop_sequences' },
}

function unsupportedFields(prompt: Prompt): UnsupportedFields {
  const body = prompt.native.value
  const fields = Object.keys(body).filter((name) => HINTS.has(name) && !isUnsetOrDisabled(body[name]))
  const output = outputFields(body['output_config']).filter((name) => name !== 'effort' && OUTPUT_HINTS.has(name))
  return { hints: [...fields, ...output.map((name) => `output_config.${name}`)], required: requiredFields(prompt) }
}

/** A system text outside the messages is the first message of the prompt. */
function pathOf(prompt: Prompt, index: number): string {
  const shift = prompt.messages[0]?.role === 'system' && prompt.native.value['system'] !== undefined ? 1 : 0
  return index < shift ? 'system' : `messages[${index - shift}]`
}

function* requiredFields(prompt: Prompt): Generator<UnsupportedField, void, undefined> {
  yield* unsupportedInFields(prompt)
  for (const [index, tool] of prompt.tools.entries()) {
    if (tool.native.dialect === 'anthropic') yield* unsupportedInTool(tool.native.value, `tools[${index}]`)
  }
  for (const [index, message] of prompt.messages.entries()) {
    const path = pathOf(prompt, index)
    if (message.native?.dialect === 'anthropic') yield* unknownFields(message.native.value, MESSAGE_FIELDS, path)
    for (const part of message.parts) yield* unsupportedInPart(part, path)
  }
  const last = prompt.messages.length - 1
  if (prompt.messages[last]?.role === 'assistant') {
    yield { param: pathOf(prompt, last), what: 'the beginning of an answer' }
  }
}

function* unsupportedInFields({ native, settings }: Prompt): Generator<UnsupportedField, void, undefined> {
  const body = native.value
  for (const [name, field] of Object.entries(body)) {
    if (isUnsetOrDisabled(field) || CARRIED.has(name)) continue
    if (name === 'thread') yield THREAD
    if (!HINTS.has(name) || holdsSkills(name, field)) yield { param: name, what: 'this field' }
  }
  for (const name of outputFields(body['output_config'])) {
    if (!OUTPUT_HINTS.has(name)) yield { param: `output_config.${name}`, what: 'this field' }
  }
  const output = body['output_config']
  const format = (isJsonObject(output) ? output['format'] : undefined) ?? body['output_format']
  if (!isUnsetOrDisabled(body['tool_choice']) && settings.toolChoice === undefined) {
    yield { param: 'tool_choice', what: 'this choice' }
  }
  if (!isUnsetOrDisabled(format) && settings.shape === undefined)
    yield { param: 'output_config.format', what: 'this format' }
}

const THREAD: UnsupportedField = {
  param: 'thread',
  isEssential: true,
  what: 'a thread that the server holds (send the whole conversation instead)',
  details: { error_code: 'thread_unsupported_request' },
}

/** A container given by its id is only reused. A container with skills changes the answer. */
function holdsSkills(name: string, field: Json | undefined): boolean {
  return name === 'container' && typeof field !== 'string'
}

function outputFields(output: Json | undefined): readonly string[] {
  if (!isJsonObject(output)) return []
  return Object.keys(output).filter((name) => name !== 'format' && !isUnsetOrDisabled(output[name]))
}

function* unsupportedInTool(tool: JsonObject, param: string): Generator<UnsupportedField, void, undefined> {
  const type = tool['type'] ?? 'custom'
  if (type !== 'custom') yield { param, what: `a tool of type ${String(type)}` }
  yield* unknownFields(tool, TOOL_FIELDS, param)
}

function* unsupportedInPart(part: Part, param: string): Generator<UnsupportedField, void, undefined> {
  const { native } = part
  if (native?.dialect === 'anthropic' && part.type !== 'thinking') {
    const type = String(native.value['type'])
    const known = BLOCK_FIELDS.get(type)
    if (known === undefined) yield { param, what: `a ${type} block` }
    else yield* unknownFields(native.value, known, `${param} (${type})`)
  }
  if (part.type === 'tool-result') for (const inner of part.content) yield* unsupportedInPart(inner, param)
}

function* unknownFields(
  value: JsonObject,
  known: ReadonlySet<string>,
  param: string,
): Generator<UnsupportedField, void, undefined> {
  for (const [name, field] of Object.entries(value)) {
    if (!known.has(name) && !isUnsetOrDisabled(field)) yield { param: `${param}.${name}`, what: 'this field' }
  }
}

/** This format also disables features by `{ enabled: false }`. */
function isUnsetOrDisabled(field: Json | undefined): boolean {
  return isUnset(field) || (isJsonObject(field) && Object.keys(field).length === 1 && field['enabled'] === false)
}
