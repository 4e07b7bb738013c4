import { GatewayError } from '../../core/errors.ts'
import { isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { DocumentPart, ImagePart, Message, Part, ToolResultPart } from '../../core/prompt.ts'

export interface ContentOptions {
  /** Where the caller finds message `index`. */
  readonly pathOf: (index: number) => string
  /** The model refuses tool calls without a signature. */
  readonly needsSignature: boolean
}

/** What Google documents for calls whose signature is not known, such as those of another vendor's model. */
const UNKNOWN_SIGNATURE = 'skip_thought_signature_validator'

/** Messages as contents: roles must alternate, so neighbors of one role become one content. */
export function writeContents(messages: readonly Message[], options: ContentOptions): readonly JsonObject[] {
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

interface Place {
  readonly path: string
  /** The names of the calls so far, by their ids: a result names its function. */
  readonly names: Map<string, string>
}

/** Thoughts are left out: only the model that had them may read them. */
function writePart(part: Part, place: Place): readonly JsonObject[] {
  switch (part.type) {
    case 'text':
      return part.text === '' ? [] : [{ text: part.text }]
    case 'image':
    case 'document':
      return [writeFile(part, place.path)]
    case 'tool-call':
      place.names.set(part.id, part.name)
      return [{ functionCall: { id: part.id, name: part.name, args: objectOf(part.input) ?? {} } }]
    case 'tool-result':
      return writeResult(part, place)
    case 'thinking':
      return []
    case 'opaque':
      throw cannotCarry(place.path, `a ${String(part.native.value['type'])} block`)
  }
}

function writeFile(part: ImagePart | DocumentPart, path: string): JsonObject {
  const { source } = part
  if (source.type === 'text') return { text: source.text }
  if (source.type === 'base64') return { inlineData: { mimeType: source.mediaType, data: source.data } }
  throw cannotCarry(path, `${part.type === 'image' ? 'an image' : 'a document'} that is not sent as base64`)
}

function writeResult(result: ToolResultPart, place: Place): readonly JsonObject[] {
  const name = place.names.get(result.callId)
  if (name === undefined) throw cannotCarry(place.path, `a result without its tool call ("${result.callId}")`)
  const text = result.content.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n')
  const files = result.content.filter((part) => part.type === 'image' || part.type === 'document')
  const value = objectOf(text) ?? { result: text }
  const response = result.failed ? { error: text } : value
  return [
    { functionResponse: { id: result.callId, name, response } },
    ...files.map((part) => writeFile(part, place.path)),
  ]
}

function objectOf(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return isJsonObject(value) ? value : undefined
  } catch {
    return undefined
  }
}

/** Of parallel calls only the first carries a signature. */
function signFirstCall(parts: JsonObject[]): void {
  const index = parts.findIndex((part) => part['functionCall'] !== undefined)
  const call = parts[index]
  if (call !== undefined) parts[index] = { ...call, thoughtSignature: UNKNOWN_SIGNATURE }
}

export function cannotCarry(param: string, what: string, details?: Json): GatewayError {
  return new GatewayError(
    'invalid-request',
    `${param}: ${what} cannot be sent to a Gemini model. Remove it, or choose a model that knows it.`,
    { param, ...(details === undefined ? {} : { details }) },
  )
}
