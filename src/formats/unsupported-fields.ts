import { asArray, asObject, isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import type { Dialect, Message, Part, Prompt } from '../core/prompt.ts'
import { nameSet } from './parse-body.ts'
import { itemsOf } from './responses/items.ts'
import { GatewayError } from '../core/errors.ts'
import { forEachInSteps, type Steps } from '../core/steps.ts'
import type { CreateContentError } from './format.ts'
import { isUnset } from './read-fields.ts'

interface UnsupportedField {
  readonly param: string
  /** Completes "… cannot be sent", such as `this field` or `a web_search block`. */
  readonly description: string
  readonly details?: Json
  /** True if even a lossy translation may not omit the field, such as a reference to a stored response. */
  readonly isEssential?: boolean
}

export type UnsupportedFields = Generator<UnsupportedField, void, undefined>

export interface SourceFormat {
  /** Body fields that are part of the prompt, or that affect only the gateway and the caller. */
  readonly handledFields: ReadonlySet<string>
  /** Body fields that may be omitted. Their names are reported as ignored. */
  readonly hintFields: ReadonlySet<string>
  /** Body fields that may be omitted if the function returns true for their value. */
  readonly harmlessFields: ReadonlyMap<string, (value: Json) => boolean>
  readonly referenceFields: ReadonlyMap<string, Omit<UnsupportedField, 'param'>>
  /** Fields of messages, tools and content parts that are translated or harmless, by type. */
  readonly knownFieldsByType: ReadonlyMap<string, ReadonlySet<string>>
  readonly isUnset: (value: Json | undefined) => boolean
  readonly toolChoiceOf: (body: JsonObject) => Json | undefined
  readonly shapeOf: (body: JsonObject) => Json | undefined
  readonly findNestedHints: (prompt: Prompt) => readonly string[]
  /** As `findNestedHints`, for one message. */
  readonly hintsInMessage: (message: Message) => readonly string[]
  readonly findNestedUnsupported: (prompt: Prompt) => UnsupportedFields
  /** As `findNestedUnsupported`, for one message. */
  readonly unsupportedInMessage: (message: Message, path: string) => UnsupportedFields
  /**
   * Returns a function from the index of a message to its path in the caller's body, such as `messages[3]`. The paths
   * of all messages take linear time.
   */
  readonly pathsIn: (prompt: Prompt) => (index: number) => string
  readonly settingNames: Readonly<Record<'shape' | 'effort' | 'stop', string>>
}

function parseKnownFields(types: Readonly<Record<string, string>>): SourceFormat['knownFieldsByType'] {
  return new Map(Object.entries(types).map(([type, names]) => [type, nameSet(names)]))
}

function structuredFormat(format: Json | undefined): Json | undefined {
  return asObject(format)?.['type'] === 'text' ? undefined : asObject(format)
}

const CHAT: SourceFormat = {
  handledFields: nameSet(
    'model messages stream stream_options max_tokens max_completion_tokens temperature top_p top_k stop tools ' +
      'tool_choice parallel_tool_calls functions function_call response_format reasoning_effort user ' +
      'safety_identifier',
  ),
  hintFields: nameSet(
    'seed logit_bias frequency_penalty presence_penalty metadata store service_tier prompt_cache_key ' +
      'prompt_cache_retention prompt_cache_options verbosity prediction',
  ),
  harmlessFields: new Map([
    ['n', (value: Json) => value === 1],
    ['top_logprobs', (value: Json) => value === 0],
    ['modalities', (value: Json) => asArray(value).every((item) => item === 'text')],
  ]),
  referenceFields: new Map(),
  knownFieldsByType: parseKnownFields({
    message: 'role content tool_calls tool_call_id function_call refusal',
    text: 'type text cache_control',
    image_url: 'type image_url cache_control',
    file: 'type file cache_control',
    refusal: 'type refusal',
  }),
  isUnset,
  toolChoiceOf: (body) => body['tool_choice'] ?? body['function_call'],
  shapeOf: (body) => structuredFormat(body['response_format']),
  findNestedHints: () => [],
  hintsInMessage: chatHintsInMessage,
  findNestedUnsupported: function* () {},
  unsupportedInMessage: unsupportedInChatMessage,
  pathsIn: () => (index) => `messages[${index}]`,
  settingNames: { shape: 'response_format', effort: 'reasoning_effort', stop: 'stop' },
}

function chatValueOf({ native }: Message | Part): JsonObject {
  return native?.dialect === 'chat' ? native.value : {}
}

/** Callers may send a response back as an assistant message, with all its fields. */
function* unsupportedInChatMessage(message: Message, path: string): UnsupportedFields {
  for (const name of unknownInChatMessage(message)) {
    if ((name === 'audio' || message.role !== 'assistant') && name !== 'name') yield unsupportedField(path, name)
  }
  for (const [index, part] of message.parts.entries()) {
    const native = chatValueOf(part)
    yield* unknownFields(CHAT, native, native['type'], `${path}.content[${index}]`)
  }
}

function unknownInChatMessage(message: Message): readonly string[] {
  const native = chatValueOf(message)
  return unknownNames(CHAT, native, 'message').filter((name) => name !== 'name' || native['role'] !== 'function')
}

function chatHintsInMessage(message: Message): readonly string[] {
  return [
    ...unknownInChatMessage(message).map((name) => `messages[].${name}`),
    ...message.parts.flatMap(chatHintsInPart),
  ]
}

function chatHintsInPart(part: Part): readonly string[] {
  if (part.type === 'thinking') return part.signature === undefined ? [] : ['messages[].thinking']
  return asObject(chatValueOf(part)['image_url'])?.['detail'] === undefined ? [] : ['image_url.detail']
}

const OUTPUT_HINT = 'task_budget'
/** The name under which dropped `defer_loading` fields are reported. The tools themselves are sent in full. */
export const DEFERRED_TOOLS = 'tools[].defer_loading'

const MESSAGES: SourceFormat = {
  handledFields: nameSet(
    'model max_tokens messages system temperature top_p top_k stop_sequences stream tools tool_choice ' +
      'output_config output_format',
  ),
  hintFields: nameSet('metadata thinking service_tier container cache_control context_management speed'),
  // A container id only selects an existing container. A container with skills changes the response.
  harmlessFields: new Map([['container', (value: Json) => typeof value === 'string']]),
  referenceFields: new Map([
    [
      'thread',
      {
        description: 'a thread stored on the server (send the whole conversation instead)',
        details: { error_code: 'thread_unsupported_request' },
      },
    ],
  ]),
  knownFieldsByType: parseKnownFields({
    message: 'role content',
    tool: 'type name description input_schema cache_control strict input_examples eager_input_streaming defer_loading',
    text: 'type text cache_control citations',
    image: 'type source cache_control',
    document: 'type source title cache_control',
    tool_use: 'type id name input cache_control caller',
    tool_result: 'type tool_use_id content is_error cache_control',
  }),
  // `{ enabled: false }` counts as unset, because it disables the feature.
  isUnset: (field) =>
    isUnset(field) || (isJsonObject(field) && Object.keys(field).length === 1 && field['enabled'] === false),
  toolChoiceOf: (body) => body['tool_choice'],
  shapeOf: (body) => asObject(body['output_config'])?.['format'] ?? body['output_format'],
  findNestedHints: ({ native, tools }) => [
    ...(otherOutputFields(native.value).includes(OUTPUT_HINT) ? [`output_config.${OUTPUT_HINT}`] : []),
    ...(tools.some((tool) => tool.native.value['defer_loading'] === true) ? [DEFERRED_TOOLS] : []),
  ],
  hintsInMessage: () => [],
  findNestedUnsupported: unsupportedInMessages,
  unsupportedInMessage: function* ({ native, parts }, path) {
    if (native?.dialect === 'messages') yield* unknownFields(MESSAGES, native.value, 'message', path)
    for (const part of parts) yield* unsupportedInBlock(part, path)
  },
  pathsIn: ({ messages, native: { value } }) => {
    const systemMessageCount = messages[0]?.role === 'system' && value['system'] !== undefined ? 1 : 0
    return (index) => (index < systemMessageCount ? 'system' : `messages[${index - systemMessageCount}]`)
  },
  settingNames: { shape: 'output_config.format', effort: 'output_config.effort', stop: 'stop_sequences' },
}

function otherOutputFields(body: JsonObject): readonly string[] {
  return nestedFields(MESSAGES, body, 'output_config', 'format', 'effort')
}

function* unsupportedInMessages(prompt: Prompt): UnsupportedFields {
  for (const name of otherOutputFields(prompt.native.value)) {
    if (name !== OUTPUT_HINT) yield unsupportedField('output_config', name)
  }
  for (const [index, { native }] of prompt.tools.entries()) {
    if (native.dialect !== 'messages') continue
    const type = native.value['type'] ?? 'custom'
    if (type !== 'custom') yield { param: `tools[${index}]`, description: `a tool of type ${String(type)}` }
    yield* unknownFields(MESSAGES, native.value, 'tool', `tools[${index}]`)
  }
  const last = prompt.messages.length - 1
  if (prompt.messages[last]?.role === 'assistant') {
    yield { param: MESSAGES.pathsIn(prompt)(last), description: 'a prefilled response' }
  }
}

function* unsupportedInBlock(part: Part, param: string): UnsupportedFields {
  const { native } = part
  if (native?.dialect === 'messages' && part.type !== 'thinking') {
    const type = String(native.value['type'])
    if (MESSAGES.knownFieldsByType.has(type)) yield* unknownFields(MESSAGES, native.value, type, `${param} (${type})`)
    else yield { param, description: `a ${type} block` }
  }
  if (part.type === 'tool-result') for (const inner of part.content) yield* unsupportedInBlock(inner, param)
}

const RESPONSES: SourceFormat = {
  handledFields: nameSet(
    'model input instructions max_output_tokens temperature top_p stream stream_options tools tool_choice ' +
      'parallel_tool_calls text reasoning user safety_identifier store metadata client_metadata',
  ),
  hintFields: nameSet(
    'presence_penalty frequency_penalty service_tier prompt_cache_key prompt_cache_retention prompt_cache_options ' +
      'context_management max_tool_calls',
  ),
  harmlessFields: new Map([
    ['top_logprobs', (value: Json) => value === 0],
    ['truncation', (value: Json) => value === 'disabled' || value === 'auto'],
    ['include', (value: Json) => !asArray(value).includes('message.output_text.logprobs')],
  ]),
  referenceFields: new Map(
    ['previous_response_id', 'conversation', 'prompt'].map((name) => [name, { description: 'this field' }]),
  ),
  knownFieldsByType: parseKnownFields({
    message: 'type role content id status phase',
    function_call: 'type id call_id name arguments status caller',
    function_call_output: 'type id call_id output status caller',
    input_text: 'type text prompt_cache_breakpoint',
    output_text: 'type text annotations logprobs parsed',
    refusal: 'type refusal parsed',
    input_image: 'type image_url file_id detail prompt_cache_breakpoint',
    input_file: 'type file_data file_id file_url filename detail prompt_cache_breakpoint',
  }),
  isUnset,
  toolChoiceOf: (body) => body['tool_choice'],
  shapeOf: (body) => structuredFormat(asObject(body['text'])?.['format']),
  findNestedHints: ({ native: { value } }) => [
    ...nestedFields(RESPONSES, value, 'text', 'format').map((name) => `text.${name}`),
    ...nestedFields(RESPONSES, value, 'reasoning', 'effort').map((name) => `reasoning.${name}`),
    ...(value['truncation'] === 'auto' ? ['truncation'] : []),
  ],
  hintsInMessage: () => [],
  findNestedUnsupported: function* () {},
  unsupportedInMessage: function* (message, path) {
    for (const item of itemsOf(message)) yield* unknownInItem(item, path)
    for (const part of message.parts) yield* unsupportedInItemPart(part, path)
  },
  pathsIn: ({ messages, native: { value } }) => {
    const systemMessageCount = typeof value['instructions'] === 'string' ? 1 : 0
    let position = -systemMessageCount
    const positions = messages.map((message) => (position += itemsOf(message).length))
    return (index) => {
      if (index < systemMessageCount) return 'instructions'
      return typeof value['input'] === 'string' ? 'input' : `input[${positions[index - 1] ?? -systemMessageCount}]`
    }
  },
  settingNames: { shape: 'text.format', effort: 'reasoning.effort', stop: 'stop' },
}

function* unsupportedInItemPart(part: Part, path: string): UnsupportedFields {
  if (part.native?.dialect !== 'responses') return
  const { value } = part.native
  if (part.type === 'opaque') yield { param: path, description: `an item or a part of type ${String(value['type'])}` }
  yield* unknownInItem(value, path)
  if (part.type === 'tool-result') for (const inner of part.content) yield* unsupportedInItemPart(inner, path)
}

/** Ignores empty objects, because SDKs send them for fields without a value. */
function* unknownInItem(item: JsonObject, path: string): UnsupportedFields {
  for (const name of unknownNames(RESPONSES, item, item['type'] ?? 'message')) {
    const value = item[name]
    if (!isJsonObject(value) || Object.keys(value).length > 0) yield unsupportedField(path, name)
  }
}

const SOURCES: Readonly<Record<Dialect, SourceFormat>> = { chat: CHAT, messages: MESSAGES, responses: RESPONSES }

export function sourceFormatOf({ native }: Pick<Prompt, 'native'>): SourceFormat {
  return SOURCES[native.dialect]
}

function* unknownFields(
  source: SourceFormat,
  value: JsonObject,
  type: Json | undefined,
  path: string,
): UnsupportedFields {
  for (const name of unknownNames(source, value, type)) yield unsupportedField(path, name)
}

function unknownNames(source: SourceFormat, value: JsonObject, type: Json | undefined): readonly string[] {
  const known = typeof type === 'string' ? source.knownFieldsByType.get(type) : undefined
  return known === undefined
    ? []
    : Object.keys(value).filter((name) => !known.has(name) && !source.isUnset(value[name]))
}

function nestedFields(source: SourceFormat, body: JsonObject, field: string, ...promptFields: string[]): string[] {
  const value = asObject(body[field]) ?? {}
  return Object.keys(value).filter((name) => !promptFields.includes(name) && !source.isUnset(value[name]))
}

const MAX_NAME_LENGTH = 100

export function unsupportedField(path: string, name: string): UnsupportedField {
  const shortName = name.slice(0, MAX_NAME_LENGTH)
  return { param: path === '' ? shortName : `${path}.${shortName}`, description: 'this field' }
}

export function emptyPromptError(): GatewayError {
  const message = 'messages: there is no content to answer. Send at least one user message that is not empty.'
  return new GatewayError('invalid-request', message, { param: 'messages' })
}

/**
 * Returns the names of the omitted fields. Throws for a tool that is not a function, and for an unsupported field unless
 * the translation is lossy and the field is not essential.
 */
export function* omittedFields(
  prompt: Prompt,
  createError: CreateContentError,
  toolField = '',
): Steps<readonly string[]> {
  const source = sourceFormatOf(prompt)
  const body = prompt.native.value
  const names = new Set(Object.keys(body).filter((name) => source.hintFields.has(name) && !source.isUnset(body[name])))
  for (const hint of source.findNestedHints(prompt)) names.add(hint)
  yield* forEachInSteps(prompt.messages, (message) => {
    for (const hint of source.hintsInMessage(message)) names.add(hint)
  })
  const omit = (fields: UnsupportedFields): void => {
    for (const { param, description, details, isEssential } of fields) {
      if (prompt.isLossy !== true || isEssential === true) throw createError(param, description, details)
      names.add(param)
    }
  }
  omit(unsupportedFields(prompt, source))
  const pathOf = source.pathsIn(prompt)
  yield* forEachInSteps(prompt.messages, (message, index) => omit(source.unsupportedInMessage(message, pathOf(index))))
  for (const [index, { name, parameters }] of prompt.tools.entries()) {
    if (parameters === undefined) throw createError(`tools[${index}]${toolField}`, `the tool ${name}`)
  }
  return [...names]
}

export function* unsupportedFields(prompt: Prompt, source: SourceFormat): UnsupportedFields {
  const { native, settings } = prompt
  const body = native.value
  for (const [name, value = null] of Object.entries(body)) {
    if (source.isUnset(value) || source.handledFields.has(name)) continue
    const isHarmless = source.harmlessFields.get(name)
    if (isHarmless === undefined ? source.hintFields.has(name) : isHarmless(value)) continue
    const referenceField = source.referenceFields.get(name)
    yield referenceField === undefined
      ? unsupportedField('', name)
      : { param: name, isEssential: true, ...referenceField }
  }
  if (settings.toolChoice === undefined && !source.isUnset(source.toolChoiceOf(body))) {
    yield { param: 'tool_choice', description: 'a choice other than auto, none, required or one function' }
  }
  if (settings.shape === undefined && !source.isUnset(source.shapeOf(body))) {
    yield { param: source.settingNames.shape, description: 'a format other than text, json_object or json_schema' }
  }
  yield* source.findNestedUnsupported(prompt)
}
