import { nameSet } from '../fields.ts'
import { asArray, asObject, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Message, Part, Prompt } from '../../core/prompt.ts'
import { isUnset, type UnsupportedFields, type UnsupportedField, type SourceFormat } from '../translation.ts'

/** Chat fields whose meaning is part of the canonical prompt. */
const CARRIED: ReadonlySet<string> = nameSet(
  'model messages stream stream_options max_tokens max_completion_tokens temperature top_p top_k stop tools ' +
    'tool_choice parallel_tool_calls functions function_call response_format reasoning_effort user ' +
    'safety_identifier',
)

/** The answer does not depend on these fields, or only slightly. */
const HINTS: ReadonlySet<string> = nameSet(
  'seed logit_bias frequency_penalty presence_penalty metadata store service_tier prompt_cache_key ' +
    'prompt_cache_retention prompt_cache_options verbosity',
)

/** Fields that can be omitted only when they have a value that changes nothing. All other fields are refused. */
const HARMLESS: ReadonlyMap<string, (value: Json) => boolean> = new Map([
  ['n', (value: Json) => value === 1],
  ['top_logprobs', (value: Json) => value === 0],
  ['modalities', (value: Json) => asArray(value).every((item) => item === 'text')],
])

/** Message fields whose meaning is part of the canonical prompt. */
const MESSAGE_FIELDS: ReadonlySet<string> = nameSet('role content tool_calls tool_call_id function_call refusal')

/** The fields of a content part, by its type. */
const PART_FIELDS: ReadonlyMap<string, readonly string[]> = new Map([
  ['text', ['type', 'text', 'cache_control']],
  ['image_url', ['type', 'image_url', 'cache_control']],
  ['file', ['type', 'file', 'cache_control']],
  ['refusal', ['type', 'refusal']],
])

/** The chat format as the source of a translation. */
export const chatSource: SourceFormat = {
  unsupportedFields: unsupportedFields,
  pathOf: (_prompt, index) => `messages[${index}]`,
  names: { shape: 'response_format', effort: 'reasoning_effort', stop: 'stop' },
}

function unsupportedFields(prompt: Prompt): UnsupportedFields {
  const body = prompt.native.value
  const hints = new Set(Object.keys(body).filter((name) => HINTS.has(name) && !isUnset(body[name])))
  for (const message of prompt.messages) for (const hint of hintsInMessage(message)) hints.add(hint)
  return { hints: [...hints], required: requiredFields(prompt) }
}

function* requiredFields(prompt: Prompt): Generator<UnsupportedField, void, undefined> {
  const { native, settings } = prompt
  const body = native.value
  for (const [name, value] of Object.entries(body)) {
    if (value === undefined || isUnset(value) || CARRIED.has(name) || HINTS.has(name)) continue
    if (HARMLESS.get(name)?.(value) !== true) yield { param: name.slice(0, MAX_NAME_LENGTH), what: 'this field' }
  }
  for (const [index, message] of prompt.messages.entries()) yield* unsupportedInMessage(message, `messages[${index}]`)
  const choice = body['tool_choice'] ?? body['function_call']
  if (choice !== undefined && choice !== null && settings.toolChoice === undefined) {
    yield { param: 'tool_choice', what: 'a choice other than auto, none, required or one function' }
  }
  const format = asObject(body['response_format'])
  if (format !== undefined && format['type'] !== 'text' && settings.shape === undefined) {
    yield { param: 'response_format', what: 'a format other than text, json_object or json_schema' }
  }
}

const MAX_NAME_LENGTH = 100

/** An assistant message may contain every field of the answer that it repeats. */
function* unsupportedInMessage(message: Message, path: string): Generator<UnsupportedField, void, undefined> {
  const stranger = strangeFields(message).find(
    (name) => (name === 'audio' || message.role !== 'assistant') && name !== 'name',
  )
  if (stranger !== undefined) yield { param: `${path}.${stranger.slice(0, MAX_NAME_LENGTH)}`, what: 'this field' }
  for (const [index, part] of message.parts.entries()) {
    const name = strangerInPart(part)
    if (name !== undefined) {
      yield { param: `${path}.content[${index}].${name.slice(0, MAX_NAME_LENGTH)}`, what: 'this field' }
    }
  }
}

function strangeFields(message: Message): readonly string[] {
  const native = nativeOf(message)
  const isNamedResult = native['role'] === 'function'
  return Object.keys(native).filter(
    (name) => !MESSAGE_FIELDS.has(name) && !isUnset(native[name]) && !(isNamedResult && name === 'name'),
  )
}

function strangerInPart(part: Part): string | undefined {
  const native = nativeOf(part)
  const type = native['type']
  const known = typeof type === 'string' ? PART_FIELDS.get(type) : undefined
  return known && Object.keys(native).find((name) => !known.includes(name) && !isUnset(native[name]))
}

function hintsInMessage(message: Message): readonly string[] {
  return [...strangeFields(message).map((name) => `messages[].${name}`), ...message.parts.flatMap(hintsInPart)]
}

function hintsInPart(part: Part): readonly string[] {
  if (part.type === 'thinking') return part.signature === undefined ? [] : ['messages[].thinking']
  const image = nativeOf(part)['image_url']
  return isJsonObject(image) && image['detail'] !== undefined ? ['image_url.detail'] : []
}

function nativeOf({ native }: Message | Part): JsonObject {
  return native?.dialect === 'openai' ? native.value : {}
}
