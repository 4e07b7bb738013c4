import { type CreateContentError, contentErrorFor, documentText, type WrittenPrompt } from '../format.ts'
import { sourceFormatOf, emptyPromptError, omittedFields } from '../unsupported-fields.ts'
import { parseExactObject } from '../../core/exact-json.ts'
import type { JsonObject } from '../../core/json.ts'
import type { DocumentPart, ImagePart, Part, Prompt, Settings, ToolChoice, ToolResultPart } from '../../core/prompt.ts'
import { forEachInSteps, serializeExactlyInSteps, type Steps } from '../../core/steps.ts'

/** The model is part of the URL, not of the body. */
export function* writeInSteps(prompt: Prompt, model: string): Steps<WrittenPrompt> {
  const omitted = yield* omittedFields(prompt, contentError)
  // The vendor bills all candidates, but the gateway reads only one.
  if ((prompt.settings.choices ?? 1) > 1) throw contentError('n', 'more than one choice')
  const ignored = [...omitted]
  if (prompt.settings.parallelToolCalls !== undefined) ignored.push('parallel_tool_calls')
  if (prompt.settings.user !== undefined) ignored.push('user')
  return { body: yield* serializeExactlyInSteps(writeBody(prompt, model)), ignored }
}

function* writeBody(prompt: Prompt, model: string): Steps<JsonObject> {
  const { settings, tools } = prompt
  const generationConfig = writeSettings(settings, model)
  return {
    ...writeSystem(prompt),
    contents: yield* writeContents(prompt, model),
    ...(tools.length > 0 && {
      tools: [{ functionDeclarations: tools.map(writeFunction) }],
      ...(settings.toolChoice !== undefined && {
        toolConfig: { functionCallingConfig: writeToolChoice(settings.toolChoice) },
      }),
    }),
    ...(Object.keys(generationConfig).length > 0 && { generationConfig }),
  }
}

/** Gemini 3 and later reject a tool call of the current turn without its thought signature. */
function isGemini3OrLater(model: string): boolean {
  return /gemini-(?:[3-9]|\d\d)/.test(model)
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
    // A function without arguments may be declared without a schema.
    ...(parameters?.['properties'] !== undefined && { parametersJsonSchema: parameters }),
  }
}

const CALLING_MODES = { auto: 'AUTO', none: 'NONE', required: 'ANY' } as const

function writeToolChoice(choice: ToolChoice): JsonObject {
  return choice.type === 'tool'
    ? { mode: 'ANY', allowedFunctionNames: [choice.name] }
    : { mode: CALLING_MODES[choice.type] }
}

function writeSettings(settings: Settings, model: string): JsonObject {
  const { maxTokens, temperature, topP, topK, stop, shape, effort } = settings
  return {
    ...(maxTokens !== undefined && { maxOutputTokens: maxTokens }),
    ...(temperature !== undefined && { temperature }),
    ...(topP !== undefined && { topP }),
    ...(topK !== undefined && { topK }),
    ...(stop !== undefined && stop.length > 0 && { stopSequences: [...stop] }),
    ...(shape !== undefined && { responseMimeType: 'application/json' }),
    ...(shape?.type === 'schema' && { responseJsonSchema: shape.schema }),
    ...(effort !== undefined && { thinkingConfig: writeEffort(effort, model) }),
  }
}

/** Thinking budgets by effort, in tokens, as in Google's chat-completions endpoint. */
const THINKING_BUDGETS: ReadonlyMap<string, number> = new Map([
  ['none', 0],
  ['minimal', 1024],
  ['low', 1024],
  ['medium', 8192],
])
const MAX_THINKING_BUDGET = 24_576

function writeEffort(effort: string, model: string): JsonObject {
  if (isGemini3OrLater(model)) return { thinkingLevel: effort === 'none' ? 'minimal' : effort }
  return { thinkingBudget: THINKING_BUDGETS.get(effort) ?? MAX_THINKING_BUDGET }
}

/** The value that Google documents for calls without a signature, such as calls of another vendor's model. */
const UNKNOWN_SIGNATURE = 'skip_thought_signature_validator'

/** Roles must alternate, so adjacent messages of one role are joined. */
function* writeContents(prompt: Prompt, model: string): Steps<readonly JsonObject[]> {
  const pathOf = sourceFormatOf(prompt).pathsIn(prompt)
  const toolNames = new Map<string, string>()
  const contents: { readonly role: string; readonly parts: JsonObject[] }[] = []
  yield* forEachInSteps(prompt.messages, (message, index) => {
    if (message.role === 'system') return
    const role = message.role === 'assistant' ? 'model' : 'user'
    const path = pathOf(index)
    const parts = message.parts.flatMap((part) => writePart(part, { path, toolNames }))
    if (role === 'model' && isGemini3OrLater(model)) signFirstCall(parts)
    if (parts.length === 0) return
    const last = contents.at(-1)
    if (last?.role === role) last.parts.push(...parts)
    else contents.push({ role, parts })
  })
  if (contents.length === 0) throw emptyPromptError()
  return contents
}

interface ContentState {
  readonly path: string
  /** The names of earlier calls by id. A result must contain the name of its function. */
  readonly toolNames: Map<string, string>
}

function writePart(part: Part, state: ContentState): readonly JsonObject[] {
  switch (part.type) {
    case 'text':
      return part.text === '' ? [] : [{ text: part.text }]
    case 'image':
    case 'document':
      return [writeFile(part, state.path)]
    case 'tool-call':
      state.toolNames.set(part.id, part.name)
      return [{ functionCall: { id: part.id, name: part.name, args: parseExactObject(part.input) ?? {} } }]
    case 'tool-result':
      return writeResult(part, state)
    case 'thinking':
      return []
    case 'opaque':
      throw contentError(state.path, `a ${String(part.native.value['type'])} block`)
  }
}

function writeFile(part: ImagePart | DocumentPart, path: string): JsonObject {
  const { source } = part
  const text = part.type === 'document' ? documentText(part) : undefined
  if (text !== undefined) return { text }
  if (source.type === 'base64') return { inlineData: { mimeType: source.mediaType, data: source.data } }
  throw contentError(path, `${part.type === 'image' ? 'an image' : 'a document'} that is not sent as base64`)
}

function writeResult(result: ToolResultPart, state: ContentState): readonly JsonObject[] {
  const name = state.toolNames.get(result.callId)
  if (name === undefined) throw contentError(state.path, `a result without its tool call ("${result.callId}")`)
  const text = result.content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n')
  const files = result.content.filter((part) => part.type === 'image' || part.type === 'document')
  const response = result.failed ? { error: text } : (parseExactObject(text) ?? { result: text })
  return [
    { functionResponse: { id: result.callId, name, response } },
    ...files.map((part) => writeFile(part, state.path)),
  ]
}

/** Signs only the first of several parallel calls, as Google does. */
function signFirstCall(parts: JsonObject[]): void {
  const index = parts.findIndex((part) => part['functionCall'] !== undefined)
  const call = parts[index]
  if (call !== undefined) parts[index] = { ...call, thoughtSignature: UNKNOWN_SIGNATURE }
}

const contentError: CreateContentError = contentErrorFor('a Gemini model')
