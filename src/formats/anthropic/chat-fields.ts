import { GatewayError } from '../../core/errors.ts'
import { asArray, asObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Message, Part, Prompt } from '../../core/prompt.ts'
import { isAbsent } from './checks.ts'

/** What becomes of a chat field on its way to an upstream of the message format. */
type Fate =
  /** Said there too, in the prompt's own terms or under another name. */
  | 'carried'
  /** The answer does not depend on it, or only by degrees: left out, and named to the caller. */
  | 'hint'
  /** The answer would not be what was asked for. */
  | 'refused'

const always = (fate: Fate) => (): Fate => fate
const refusedWhen =
  (asked: (value: Json) => boolean) =>
  (value: Json): Fate =>
    asked(value) ? 'refused' : 'carried'

/** The fields of a chat request. A field that is not here is refused. */
const REQUEST_FIELDS: ReadonlyMap<string, (value: Json) => Fate> = new Map([
  ['model', always('carried')],
  ['messages', always('carried')],
  ['stream', always('carried')],
  ['stream_options', always('carried')],
  ['max_tokens', always('carried')],
  ['max_completion_tokens', always('carried')],
  ['temperature', always('carried')],
  ['top_p', always('carried')],
  ['stop', always('carried')],
  ['tools', always('carried')],
  ['tool_choice', always('carried')],
  ['parallel_tool_calls', always('carried')],
  ['response_format', always('carried')],
  ['functions', always('carried')],
  ['function_call', always('carried')],
  ['user', always('carried')],
  ['safety_identifier', always('carried')],
  ['n', refusedWhen((value) => value !== 1)],
  ['logprobs', refusedWhen((value) => value !== false)],
  ['top_logprobs', refusedWhen((value) => value !== 0)],
  ['modalities', refusedWhen((value) => asArray(value).some((item) => item !== 'text'))],
  ['seed', always('hint')],
  ['logit_bias', always('hint')],
  ['frequency_penalty', always('hint')],
  ['presence_penalty', always('hint')],
  ['metadata', always('hint')],
  ['store', always('hint')],
  ['service_tier', always('hint')],
  ['prompt_cache_key', always('hint')],
  ['prompt_cache_retention', always('hint')],
  ['prompt_cache_options', always('hint')],
  ['verbosity', always('hint')],
  ['reasoning_effort', always('hint')],
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
    if (isAbsent(value)) continue
    const fate = REQUEST_FIELDS.get(name)?.(value) ?? 'refused'
    if (fate === 'refused') throw refusal(name)
    if (fate === 'hint') ignored.add(name)
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
    (name) => !MESSAGE_FIELDS.has(name) && !isAbsent(native[name]) && !(isNamedResult && name === 'name'),
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
  const stranger = Object.keys(native).find((name) => !known.includes(name) && !isAbsent(native[name]))
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

/** The stable name of the caller's own user, by which a vendor recognises abuse. */
export function userOf(body: JsonObject): string | undefined {
  const user = body['user'] ?? body['safety_identifier']
  return typeof user === 'string' && user !== '' ? user : undefined
}
