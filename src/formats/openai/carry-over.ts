import { GatewayError } from '../../core/errors.ts'
import { isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Message, Part, Prompt } from '../../core/prompt.ts'
import { cannotCarry } from './write-content.ts'

/** Fields of a message request whose meaning the canonical prompt holds. */
const CARRIED: ReadonlySet<string> = new Set([
  'model',
  'max_tokens',
  'messages',
  'system',
  'temperature',
  'top_p',
  'stop_sequences',
  'stream',
  'tools',
  'tool_choice',
  'output_config',
  'output_format',
])

/** Fields that only steer: an answer without them is still the answer that was asked for. */
const HINTS: ReadonlySet<string> = new Set([
  'top_k',
  'metadata',
  'thinking',
  'service_tier',
  'container',
  'cache_control',
  'context_management',
  'speed',
])
const OUTPUT_HINTS: ReadonlySet<string> = new Set(['effort', 'task_budget'])

const TOOL_FIELDS: ReadonlySet<string> = new Set([
  'type',
  'name',
  'description',
  'input_schema',
  'cache_control',
  'strict',
  'input_examples',
  'eager_input_streaming',
])
const MESSAGE_FIELDS: ReadonlySet<string> = new Set(['role', 'content'])

/** Blocks whose meaning the canonical parts hold, with the fields that may be left out or are carried. */
const BLOCK_FIELDS: ReadonlyMap<string, ReadonlySet<string>> = new Map([
  ['text', new Set(['type', 'text', 'cache_control', 'citations'])],
  ['image', new Set(['type', 'source', 'cache_control'])],
  ['document', new Set(['type', 'source', 'title', 'cache_control'])],
  ['tool_use', new Set(['type', 'id', 'name', 'input', 'cache_control', 'caller'])],
  ['tool_result', new Set(['type', 'tool_use_id', 'content', 'is_error', 'cache_control'])],
])

/**
 * Looks for what a request of the message format says beyond the canonical prompt. Answers with the hints that are
 * left out; throws `invalid-request` naming the field for what would change the answer or is unknown.
 */
export function checkCarryOver(prompt: Prompt, paramOf: (index: number) => string): readonly string[] {
  if (prompt.native.dialect === 'openai') return []
  const { value } = prompt.native
  const ignored = checkFields(value)
  checkUnderstood(prompt)
  prompt.tools.forEach((tool, index) => {
    if (tool.native.dialect === 'anthropic') checkTool(tool.native.value, `tools[${index}]`)
  })
  prompt.messages.forEach((message, index) => checkMessage(message, paramOf(index)))
  const last = prompt.messages.length - 1
  if (prompt.messages[last]?.role === 'assistant') throw cannotCarry(paramOf(last), 'the beginning of an answer')
  return ignored
}

function checkFields(body: JsonObject): readonly string[] {
  const ignored: string[] = []
  for (const [name, field] of Object.entries(body)) {
    if (isSilent(field) || CARRIED.has(name)) continue
    if (name === 'thread') throw noThreads()
    if (!HINTS.has(name) || holdsSkills(name, field)) throw cannotCarry(name, 'this field')
    ignored.push(name)
  }
  return [...ignored, ...checkOutput(body['output_config'])]
}

/** Carried fields in a form that the canonical prompt does not have. */
function checkUnderstood({ native, settings }: Prompt): void {
  const { tool_choice: choice, output_config: output, output_format: older } = native.value
  const format = (isJsonObject(output) ? output['format'] : undefined) ?? older
  if (!isSilent(choice) && settings.toolChoice === undefined) throw cannotCarry('tool_choice', 'this choice')
  if (!isSilent(format) && settings.shape === undefined) throw cannotCarry('output_config.format', 'this format')
}

/** A container named by its id is only reused; one with skills gives the model abilities. */
function holdsSkills(name: string, field: Json | undefined): boolean {
  return name === 'container' && typeof field !== 'string'
}

function checkOutput(output: Json | undefined): readonly string[] {
  if (!isJsonObject(output)) return []
  const names = Object.keys(output).filter((name) => name !== 'format' && !isSilent(output[name]))
  for (const name of names) {
    if (!OUTPUT_HINTS.has(name)) throw cannotCarry(`output_config.${name}`, 'this field')
  }
  return names.map((name) => `output_config.${name}`)
}

function checkTool(tool: JsonObject, param: string): void {
  const type = tool['type'] ?? 'custom'
  if (type !== 'custom') throw cannotCarry(param, `a tool of type ${String(type)}`)
  checkKnown(tool, TOOL_FIELDS, param)
}

function checkMessage(message: Message, param: string): void {
  if (message.native?.dialect === 'anthropic') checkKnown(message.native.value, MESSAGE_FIELDS, param)
  message.parts.forEach((part) => checkPart(part, param))
}

function checkPart(part: Part, param: string): void {
  const { native } = part
  if (native?.dialect === 'anthropic' && part.type !== 'thinking') {
    const type = String(native.value['type'])
    const known = BLOCK_FIELDS.get(type)
    if (known === undefined) throw cannotCarry(param, `a ${type} block`)
    checkKnown(native.value, known, `${param} (${type})`)
  }
  if (part.type === 'tool-result') part.content.forEach((inner) => checkPart(inner, param))
}

function checkKnown(value: JsonObject, known: ReadonlySet<string>, param: string): void {
  for (const [name, field] of Object.entries(value)) {
    if (!known.has(name) && !isSilent(field)) throw cannotCarry(`${param}.${name}`, 'this field')
  }
}

/** Absent, null, switched off or empty: a field that says nothing. */
function isSilent(field: Json | undefined): boolean {
  if (field === undefined || field === null || field === false) return true
  if (Array.isArray(field)) return field.length === 0
  return isJsonObject(field) && Object.keys(field).length === 1 && field['enabled'] === false
}

function noThreads(): GatewayError {
  return new GatewayError(
    'invalid-request',
    'Server-held threads are not possible with this model: send the whole conversation.',
    { param: 'thread', details: { error_code: 'thread_unsupported_request' } },
  )
}
