import { GatewayError } from '../../core/errors.ts'
import { asArray, asObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Message, Part, Prompt } from '../../core/prompt.ts'

/** Chat fields that the message format says too, in the prompt's own terms or under another name. */
const CARRIED: ReadonlySet<string> = new Set([
  'model',
  'messages',
  'stream',
  'stream_options',
  'max_tokens',
  'max_completion_tokens',
  'temperature',
  'top_p',
  'top_k',
  'stop',
  'tools',
  'tool_choice',
  'parallel_tool_calls',
  'functions',
  'function_call',
  'response_format',
  'user',
  'safety_identifier',
])

/** The answer does not depend on them, or only by degrees: left out, and named to the caller. */
const HINTS: ReadonlySet<string> = new Set([
  'seed',
  'logit_bias',
  'frequency_penalty',
  'presence_penalty',
  'metadata',
  'store',
  'service_tier',
  'prompt_cache_key',
  'prompt_cache_retention',
  'prompt_cache_options',
  'verbosity',
  'reasoning_effort',
])

/** Fields that can be left out only while they ask for what every answer is. All fields not named here are refused. */
const HARMLESS: ReadonlyMap<string, (value: Json) => boolean> = new Map([
  ['n', (value: Json) => value === 1],
  ['top_logprobs', (value: Json) => value === 0],
  ['modalities', (value: Json) => asArray(value).every((item) => item === 'text')],
])

/** The fields of a message that are said in the prompt's own terms. */
const MESSAGE_FIELDS: ReadonlySet<string> = new Set([
  'role',
  'content',
  'tool_calls',
  'tool_call_id',
  'function_call',
  'refusal',
])

/** The fields of a content part, by its type. */
const PART_FIELDS: ReadonlyMap<string, readonly string[]> = new Map([
  ['text', ['type', 'text', 'cache_control']],
  ['image_url', ['type', 'image_url', 'cache_control']],
  ['file', ['type', 'file', 'cache_control']],
  ['refusal', ['type', 'refusal']],
])

/**
 * The names of the hints of a chat request that the message format does not have. Throws `invalid-request` for a field
 * that cannot be left out without changing what was asked for.
 */
export function ignoredFields(prompt: Prompt): readonly string[] {
  const ignored = new Set<string>()
  for (const [name, value] of Object.entries(prompt.native.value)) {
    if (value === undefined || isSilent(value) || CARRIED.has(name)) continue
    if (HINTS.has(name)) ignored.add(name)
    else if (HARMLESS.get(name)?.(value) !== true) throw refusal(name)
  }
  prompt.messages.forEach((message, index) => {
    for (const name of ignoredInMessage(message, `messages[${index}]`)) ignored.add(name)
  })
  return [...ignored]
}

/** An assistant message may carry whatever the answer it repeats came with; other messages say only what is meant. */
function ignoredInMessage(message: Message, path: string): readonly string[] {
  const native = message.native?.value ?? {}
  const isNamedResult = native['role'] === 'function'
  const ignored = Object.keys(native).filter(
    (name) => !MESSAGE_FIELDS.has(name) && !isSilent(native[name]) && !(isNamedResult && name === 'name'),
  )
  const stranger = ignored.find((name) => (name === 'audio' || message.role !== 'assistant') && name !== 'name')
  if (stranger !== undefined) throw refusal(`${path}.${stranger}`)
  const details = message.parts.flatMap((part, index) => ignoredInPart(part, `${path}.content[${index}]`))
  return [...ignored.map((name) => `messages[].${name}`), ...details]
}

function ignoredInPart(part: Part, path: string): readonly string[] {
  const native = part.native?.value
  const known = typeof native?.['type'] === 'string' ? PART_FIELDS.get(native['type']) : undefined
  if (native === undefined || known === undefined) return part.type === 'thinking' ? sealless(part.signature) : []
  const stranger = Object.keys(native).find((name) => !known.includes(name) && !isSilent(native[name]))
  if (stranger !== undefined) throw refusal(`${path}.${stranger}`)
  return asObject(native['image_url'])?.['detail'] === undefined ? [] : ['image_url.detail']
}

/** The message format takes back only thoughts that its vendor sealed. */
function sealless(signature: string | undefined): readonly string[] {
  return signature === undefined ? ['messages[].thinking'] : []
}

function refusal(param: string): GatewayError {
  const shown = param.slice(0, 100)
  return new GatewayError(
    'invalid-request',
    `${shown} cannot be sent to this model, which is reached in the message format. Leave it out or choose another model.`,
    { param: shown },
  )
}

/** Absent, null, switched off or empty: a field that asks for nothing. */
function isSilent(value: Json | undefined): boolean {
  return value === undefined || value === null || value === false || (Array.isArray(value) && value.length === 0)
}

/** The stable name of the caller's own user, by which a vendor recognises abuse. */
export function userOf(body: JsonObject): string | undefined {
  const user = body['user'] ?? body['safety_identifier']
  return typeof user === 'string' && user !== '' ? user : undefined
}
