import { type RefuseContent, refuseContentFor } from '../write-prompt.ts'
import { omittedFields } from '../translators.ts'
import { sourceOf } from '../unsupported-fields.ts'
import { GatewayError } from '../../core/errors.ts'
import { asArray, asObject, asString, parseJson, type Json, type JsonObject } from '../../core/json.ts'
import type {
  AnswerShape,
  DocumentPart,
  ImagePart,
  Message,
  Part,
  Prompt,
  Settings,
  ToolChoice,
  ToolResultPart,
} from '../../core/prompt.ts'
import type { UpstreamFormat, WrittenPrompt } from '../format.ts'
import { readFailure as readAnyFailure } from '../read-failure.ts'
import { readCompletion, stepReader } from './answer.ts'

/**
 * Writes the body of `generateContent`. The model is part of the address. Throws `invalid-request` for required content
 * that this format cannot express.
 */
export function writePrompt(prompt: Prompt, model: string): WrittenPrompt {
  const source = sourceOf(prompt)
  const hints = omittedFields(prompt, refuseContent)
  // The gateway reads one candidate, and the vendor bills all of them.
  if ((prompt.settings.choices ?? 1) > 1) throw refuseContent('n', 'more than one choice')
  const pathOf = (index: number): string => source.pathOf(prompt, index)
  const { settings, tools } = prompt
  const body: JsonObject = {
    ...writeSystem(prompt),
    contents: writeContents(prompt.messages, { pathOf, needsSignature: needsSignature(model) }),
    ...(tools.length > 0 && {
      tools: [{ functionDeclarations: tools.map(writeFunction) }],
      ...(settings.toolChoice !== undefined && {
        toolConfig: { functionCallingConfig: writeChoice(settings.toolChoice) },
      }),
    }),
    ...nonEmpty('generationConfig', writeSettings(settings, model)),
  }
  if (asArray(body['contents']).length > 0) {
    return { body: JSON.stringify(body), ignored: [...hints, ...ignoredOf(settings)] }
  }
  throw new GatewayError('invalid-request', 'messages have no content to answer. Send at least one user message.', {
    param: 'messages',
  })
}

/** Models from version 3 refuse a tool call of the current turn without the signature of its thoughts. */
function needsSignature(model: string): boolean {
  return /gemini-(?:[3-9]|\d\d)/.test(model)
}

function ignoredOf({ parallelToolCalls, user }: Settings): readonly string[] {
  return [...(parallelToolCalls === undefined ? [] : ['parallel_tool_calls']), ...(user === undefined ? [] : ['user'])]
}

function writeSystem({ messages }: Prompt): JsonObject {
  const parts = messages
    .filter(({ role }) => role === 'system')
    .flatMap((message) => message.parts.flatMap((part) => (part.type === 'text' ? [{ text: part.text }] : [])))
  return parts.length === 0 ? {} : { systemInstruction: { parts } }
}

function writeFunction({ name, description, parameters }: Prompt['tools'][number]): JsonObject {
  return {
    name,
    ...(description !== undefined && { description }),
    // A function without arguments has no schema in this format.
    ...(parameters?.['properties'] !== undefined && { parametersJsonSchema: parameters }),
  }
}

const MODES = { auto: 'AUTO', none: 'NONE', required: 'ANY' } as const

function writeChoice(choice: ToolChoice): JsonObject {
  return choice.type === 'tool' ? { mode: 'ANY', allowedFunctionNames: [choice.name] } : { mode: MODES[choice.type] }
}

function writeSettings(settings: Settings, model: string): JsonObject {
  const { maxTokens, temperature, topP, topK, stop, shape, effort } = settings
  return {
    ...(maxTokens !== undefined && { maxOutputTokens: maxTokens }),
    ...(temperature !== undefined && { temperature }),
    ...(topP !== undefined && { topP }),
    ...(topK !== undefined && { topK }),
    ...(stop !== undefined && stop.length > 0 && { stopSequences: [...stop] }),
    ...(shape !== undefined && writeShape(shape)),
    ...(effort !== undefined && { thinkingConfig: writeEffort(effort, model) }),
  }
}

function writeShape(shape: AnswerShape): JsonObject {
  const schema: { readonly responseJsonSchema?: Json } =
    shape.type === 'schema' ? { responseJsonSchema: shape.schema } : {}
  return { responseMimeType: 'application/json', ...schema }
}

/** Thinking budgets that Google's own chat-completions endpoint uses for these efforts. */
const BUDGETS: Readonly<Record<string, number>> = { none: 0, minimal: 1024, low: 1024, medium: 8192, high: 24_576 }

function writeEffort(effort: string, model: string): JsonObject {
  if (needsSignature(model)) return { thinkingLevel: effort === 'none' ? 'minimal' : effort }
  return { thinkingBudget: BUDGETS[effort] ?? 24_576 }
}

function nonEmpty(field: string, value: JsonObject): JsonObject {
  return Object.keys(value).length === 0 ? {} : { [field]: value }
}

interface ContentOptions {
  /** Returns the path of a message in the caller's body. */
  readonly pathOf: (index: number) => string
  /** True when the model refuses tool calls without a signature. */
  readonly needsSignature: boolean
}

/** The value documented by Google for calls without a known signature, such as calls by another vendor's model. */
const UNKNOWN_SIGNATURE = 'skip_thought_signature_validator'

/** Writes messages as contents. Roles must alternate, so adjacent messages of one role become one content. */
function writeContents(messages: readonly Message[], options: ContentOptions): readonly JsonObject[] {
  const names = new Map<string, string>()
  const contents: { readonly role: string; readonly parts: JsonObject[] }[] = []
  messages.forEach((message, index) => {
    if (message.role === 'system') return
    const role = message.role === 'assistant' ? 'model' : 'user'
    const path = options.pathOf(index)
    const parts = message.parts.flatMap((part) => writePart(part, { path, names }))
    if (role === 'model' && options.needsSignature) signFirstCall(parts)
    if (parts.length === 0) return
    const last = contents.at(-1)
    if (last?.role === role) last.parts.push(...parts)
    else contents.push({ role, parts })
  })
  return contents
}

interface ContentState {
  readonly path: string
  /** The names of the calls so far, by id, because a result names its function. */
  readonly names: Map<string, string>
}

/** Writes a part. Reasoning is omitted, because only the model that produced it can read it. */
function writePart(part: Part, state: ContentState): readonly JsonObject[] {
  switch (part.type) {
    case 'text':
      return part.text === '' ? [] : [{ text: part.text }]
    case 'image':
    case 'document':
      return [writeFile(part, state.path)]
    case 'tool-call':
      state.names.set(part.id, part.name)
      return [{ functionCall: { id: part.id, name: part.name, args: asObject(parseJson(part.input)) ?? {} } }]
    case 'tool-result':
      return writeResult(part, state)
    case 'thinking':
      return []
    case 'opaque':
      throw refuseContent(state.path, `a ${String(part.native.value['type'])} block`)
  }
}

function writeFile(part: ImagePart | DocumentPart, path: string): JsonObject {
  const { source } = part
  if (source.type === 'text') return { text: source.text }
  if (source.type === 'base64') return { inlineData: { mimeType: source.mediaType, data: source.data } }
  throw refuseContent(path, `${part.type === 'image' ? 'an image' : 'a document'} that is not sent as base64`)
}

function writeResult(result: ToolResultPart, state: ContentState): readonly JsonObject[] {
  const name = state.names.get(result.callId)
  if (name === undefined) throw refuseContent(state.path, `a result without its tool call ("${result.callId}")`)
  const text = result.content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n')
  const files = result.content.filter((part) => part.type === 'image' || part.type === 'document')
  const value = asObject(parseJson(text)) ?? { result: text }
  const response = result.failed ? { error: text } : value
  return [
    { functionResponse: { id: result.callId, name, response } },
    ...files.map((part) => writeFile(part, state.path)),
  ]
}

/** Adds the signature to the first of parallel calls only, as Google does. */
function signFirstCall(parts: JsonObject[]): void {
  const index = parts.findIndex((part) => part['functionCall'] !== undefined)
  const call = parts[index]
  if (call !== undefined) parts[index] = { ...call, thoughtSignature: UNKNOWN_SIGNATURE }
}

export const refuseContent: RefuseContent = refuseContentFor('a Gemini model')

/** The upstream side of Google's `generateContent`. Callers cannot use this format. */
export const geminiUpstream: UpstreamFormat = {
  dialect: 'gemini',
  writePrompt,
  readCompletion,
  stepReader,
  readFailure,
}

/** Reads a failure. Google responds to a wrong key with 400, which must not be reported as the caller's error. */
function readFailure(status: number, body: JsonObject | undefined): GatewayError {
  const error = asObject(body?.['error'])
  const isOurKey = status === 400 && /API[ _]key/i.test(asString(error?.['message']) ?? '')
  if (!isOurKey) return readAnyFailure(status, body)
  return new GatewayError(
    'upstream',
    'The model provider refused the credentials of the gateway. Notify its operator.',
    {
      advice: { shouldRetry: 'false' },
    },
  )
}
