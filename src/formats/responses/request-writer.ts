import {
  changedTools,
  documentText,
  type CreateContentError,
  contentErrorFor,
  urlOf,
  mergeChanges,
  writeNativeBody,
  type WrittenPrompt,
} from '../format.ts'
import { sourceFormatOf, omittedFields } from '../unsupported-fields.ts'
import { asArray, type Json, type JsonObject } from '../../core/json.ts'
import type { DocumentPart, Message, Part, Prompt, ToolResultPart } from '../../core/prompt.ts'
import { mapSlices, runSteps, serializeInSteps, type Steps } from '../../core/steps.ts'
import { isEncodedReasoning, itemsOf } from './items.ts'
import { type BodyChanges, callArguments, changedResponseSettings, writeResponseTool } from '../settings.ts'

export function writePrompt(prompt: Prompt, model: string): WrittenPrompt {
  return runSteps(writeInSteps(prompt, model))
}

export function* writeInSteps(prompt: Prompt, model: string): Steps<WrittenPrompt> {
  if (prompt.native.dialect === 'responses') return writeResponsesBody(prompt, model)
  return yield* translateToResponses(prompt, model)
}

function writeResponsesBody(prompt: Prompt, model: string): WrittenPrompt {
  const { value, settings } = prompt.native
  const changes = mergeChanges(
    prompt.settings === settings ? {} : changedResponseSettings(value, prompt.settings),
    (value['stream'] === true) === prompt.stream ? {} : { stream: prompt.stream },
    changedTools(asArray(value['tools']), prompt.tools, writeResponseTool),
    changedInput(prompt),
  )
  return writeNativeBody(prompt, model, changes)
}

function changedInput(prompt: Prompt): BodyChanges {
  const { value } = prompt.native
  const [first, ...others] = prompt.messages
  const hasInstructions = typeof value['instructions'] === 'string' && first?.role === 'system'
  const messages = hasInstructions ? others : prompt.messages
  if (isInputAsReceived(value, messages)) return {}
  const pathOf = sourceFormatOf(prompt).pathsIn(prompt)
  const items = writeItems(messages, (index) => pathOf(index + (hasInstructions ? 1 : 0)))
  return { input: items.filter((item) => !isEncodedReasoning(item)) }
}

function isInputAsReceived({ input }: JsonObject, messages: readonly Message[]): boolean {
  if (messages.some((message) => message.native === undefined)) return false
  const items = messages.flatMap(itemsOf)
  if (typeof input === 'string') return items.length === 1 && items[0]?.['content'] === input
  const before = asArray(input)
  return (
    before.length === items.length && items.every((item, index) => item === before[index] && !isEncodedReasoning(item))
  )
}

/** Sets `store: false`, because callers of other formats cannot refer to stored responses. */
function* translateToResponses(prompt: Prompt, model: string): Steps<WrittenPrompt> {
  const { pathsIn, settingNames } = sourceFormatOf(prompt)
  const omitted = yield* omittedFields(prompt, contentError)
  const { stop, topK } = prompt.settings
  if (stop !== undefined && stop.length > 0) throw contentError(settingNames.stop, 'a stop sequence')
  const hasTools = prompt.tools.length > 0
  const { toolChoice: _choice, parallelToolCalls: _parallel, ...withoutTools } = prompt.settings
  const pathOf = pathsIn(prompt)
  const input = yield* mapSlices(prompt.messages, (slice, start) => writeItems(slice, (index) => pathOf(start + index)))
  const body = {
    model,
    input,
    store: false,
    ...(hasTools ? { tools: prompt.tools.map(writeResponseTool) } : {}),
    ...changedResponseSettings({}, hasTools ? prompt.settings : withoutTools),
    ...(prompt.stream ? { stream: true } : {}),
  }
  return { body: yield* serializeInSteps(body), ignored: topK === undefined ? omitted : [...omitted, 'top_k'] }
}

function writeItems(messages: readonly Message[], pathOf: (index: number) => string): readonly JsonObject[] {
  return messages.flatMap((message, index) => {
    const items = itemsOf(message)
    return items.length > 0 ? items : writeMessage(message, pathOf(index))
  })
}

function writeMessage(message: Message, path: string): readonly JsonObject[] {
  const items: JsonObject[] = []
  let content: Part[] = []
  const flush = (): void => {
    if (content.length > 0) items.push(writeContent(message, content, path))
    content = []
  }
  for (const part of message.parts) {
    const separateItems = writeSeparateItems(part, path)
    if (separateItems === undefined) content.push(part)
    else {
      flush()
      items.push(...separateItems)
    }
  }
  flush()
  return items
}

/** Returns the items of a part, or undefined for a part that belongs in the content of a message. */
function writeSeparateItems(part: Part, path: string): readonly JsonObject[] | undefined {
  const native = nativeOf(part)
  switch (part.type) {
    case 'tool-call':
      return [native ?? { type: 'function_call', call_id: part.id, name: part.name, arguments: callArguments(part) }]
    case 'tool-result':
      return [native ?? { type: 'function_call_output', call_id: part.callId, output: writeOutput(part, path) }]
    case 'thinking':
      // Reasoning in another format is omitted, because models that use this format cannot read it.
      return native === undefined ? [] : [native]
    case 'opaque': {
      const type = String(part.native.value['type'])
      if (native === undefined) throw contentError(path, `a ${type} block`)
      return type.startsWith('input_') ? undefined : [native]
    }
    default:
      return undefined
  }
}

function writeContent(message: Message, parts: readonly Part[], path: string): JsonObject {
  const role = message.role === 'tool' ? 'user' : message.role
  const [firstPart] = parts
  if (parts.length === 1 && firstPart?.type === 'text' && nativeOf(firstPart) === undefined) {
    return { role, content: firstPart.text }
  }
  return { role, content: parts.map((part) => writeBlock(part, role, path)) }
}

function writeBlock(part: Part, role: string, path: string): JsonObject {
  const native = nativeOf(part)
  if (native !== undefined) return native
  switch (part.type) {
    case 'text':
      return { type: role === 'assistant' ? 'output_text' : 'input_text', text: part.text }
    case 'image':
      return { type: 'input_image', image_url: urlOf(part.source, path, contentError), detail: 'auto' }
    case 'document':
      return writeDocument(part, path)
    default:
      throw contentError(path, `a ${String(part.native?.value['type'] ?? part.type)} block in a tool result`)
  }
}

function writeDocument(part: DocumentPart, path: string): JsonObject {
  const { source, title } = part
  if (source.type === 'text') return { type: 'input_text', text: documentText(part) }
  if (source.type === 'url') return { type: 'input_file', file_url: source.url }
  return { type: 'input_file', filename: title ?? 'document', file_data: urlOf(source, path, contentError) }
}

/** Marks a failed result in its text, because the format has no field for failures. */
function writeOutput(result: ToolResultPart, path: string): Json {
  const content = result.failed ? [{ type: 'text', text: 'Error: ' } as const, ...result.content] : result.content
  if (content.every((part) => part.type === 'text'))
    return content.map((part) => part.text).join(result.failed ? '' : '\n')
  return content.map((part) => writeBlock(part, 'user', path))
}

function nativeOf(part: Part): JsonObject | undefined {
  return part.native?.dialect === 'responses' ? part.native.value : undefined
}

const contentError: CreateContentError = contentErrorFor('a model that uses the responses format')
