/** Adapts a completion before it is written: a replayed one to its caller, and one whose JSON was only requested by text. */
import type { Completion } from '../core/completion.ts'
import { GatewayError } from '../core/errors.ts'
import { isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import type { Runtime } from '../core/ports.ts'
import { setMembers } from '../core/splice-json.ts'
import { type Parsed, type Planned } from './exchange.ts'
import { hexDigitsOf } from './request-id.ts'

/** Fields of the request that a response repeats, and their values where the request does not set them. */
const ECHOED_FIELDS: Readonly<Record<string, Json>> = {
  metadata: {},
  user: null,
  safety_identifier: null,
  prompt_cache_key: null,
}

/**
 * Returns a stored response with its own id and with this caller's values of the echoed fields. They are not part of the
 * cache key, so the stored response may contain those of another caller.
 */
export function addressToCaller(
  completion: Completion,
  planned: Pick<Planned, 'format' | 'id' | 'prompt' | 'requestBody'>,
  runtime: Pick<Runtime, 'uuid'>,
): Completion {
  const id = newResponseId(planned, runtime)
  const own = id === undefined ? completion : { ...completion, id }
  const { native } = own
  if (native === undefined || native.dialect !== planned.format.dialect) return own
  const value = { ...native.value, ...(id !== undefined && { id }) }
  const echoed = echoedFieldsOf(native.value, planned)
  // The text keeps numbers that `value` cannot represent. Writers replace its id.
  if (echoed === undefined) return { ...own, native: { ...native, value } }
  const texts = Object.fromEntries(Object.entries(echoed).map(([name, field]) => [name, JSON.stringify(field)]))
  const text = native.text === undefined ? undefined : setMembers(native.text, texts)
  return {
    ...own,
    native: { dialect: native.dialect, value: { ...value, ...echoed }, ...(text !== undefined && { text }) },
  }
}

/** Returns undefined if the response repeats none of the fields. */
export function echoedFieldsOf(
  response: JsonObject,
  { prompt, requestBody = prompt.native.value }: Pick<Planned, 'prompt' | 'requestBody'>,
): JsonObject | undefined {
  const names = Object.keys(ECHOED_FIELDS).filter((name) => response[name] !== undefined)
  if (names.length === 0) return undefined
  return Object.fromEntries(names.map((name) => [name, requestBody[name] ?? ECHOED_FIELDS[name] ?? null]))
}

/** Returns undefined if the format uses the upstream's id. */
export function newResponseId(
  { format, id }: Pick<Parsed, 'format' | 'id'>,
  { uuid }: Pick<Runtime, 'uuid'>,
): string | undefined {
  return format.responseId?.(hexDigitsOf(uuid())) ?? format.turns?.responseId(id)
}

const FENCED_JSON = /^```(?:json)?\s*\n([\s\S]*?)\n?```$/

export function unwrapJson(completion: Completion): Completion {
  if (completion.finish !== 'stop') return completion
  const texts = completion.parts.flatMap((part) => (part.type === 'text' ? [part.text] : []))
  const text = texts.join('').trim()
  const json = FENCED_JSON.exec(text)?.[1] ?? text
  if (!isObjectText(json)) throw notJsonError()
  if (json === text) return completion
  const others = completion.parts.filter((part) => part.type !== 'text')
  return { ...completion, parts: [...others, { type: 'text', text: json }] }
}

function isObjectText(text: string): boolean {
  try {
    return isJsonObject(JSON.parse(text))
  } catch {
    return false
  }
}

function notJsonError(): GatewayError {
  return new GatewayError(
    'upstream',
    'The model did not answer with a JSON object. Retry, or request a JSON schema (type json_schema).',
  )
}
