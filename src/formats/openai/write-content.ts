import { GatewayError } from '../../core/errors.ts'
import type { Json, JsonObject } from '../../core/json.ts'
import type { DocumentPart, ImagePart, Native, Part } from '../../core/prompt.ts'

/** What can stand in the content of a message. */
export type ContentPart = Extract<Part, { readonly type: 'text' | 'image' | 'document' | 'opaque' }>

/** One text of our own is a plain string, which every server understands; all else is an array of parts. */
export function writeContent(parts: readonly ContentPart[], param: string): Json {
  const [only] = parts
  if (only === undefined) return ''
  if (parts.length === 1 && only.type === 'text' && nativeOf(only.native) === undefined) return only.text
  return parts.map((part) => writeContentPart(part, param))
}

/** The part's own block where it has one of this dialect; a fresh block else. */
function writeContentPart(part: ContentPart, param: string): JsonObject {
  const native = nativeOf(part.native)
  if (native !== undefined) return native
  switch (part.type) {
    case 'text':
      return { type: 'text', text: part.text }
    case 'image':
      return { type: 'image_url', image_url: { url: addressOf(part, param) } }
    case 'document':
      return writeDocument(part, param)
    case 'opaque':
      throw cannotCarry(param, `a ${String(part.native.value['type'])} block`)
  }
}

function writeDocument(part: DocumentPart, param: string): JsonObject {
  const { source, title } = part
  if (source.type === 'text') {
    return { type: 'text', text: title === undefined ? source.text : `${title}\n\n${source.text}` }
  }
  if (source.type === 'url') throw cannotCarry(param, 'a document given by its address')
  return { type: 'file', file: { filename: title ?? 'document', file_data: addressOf({ source }, param) } }
}

function addressOf({ source }: Pick<ImagePart, 'source'>, param: string): string {
  switch (source.type) {
    case 'base64':
      return `data:${source.mediaType};base64,${source.data}`
    case 'url':
      return source.url
    case 'file':
      throw cannotCarry(param, 'a file id of another vendor')
  }
}

export function nativeOf(native: Native | undefined): JsonObject | undefined {
  return native?.dialect === 'openai' ? native.value : undefined
}

/** Content that cannot be carried over is reported, never silently lost. */
export function cannotCarry(param: string, what: string, details?: Json): GatewayError {
  return new GatewayError(
    'invalid-request',
    `${param}: ${what} cannot be sent to a model of the chat format. Remove it, or choose a model that knows it.`,
    { param, ...(details === undefined ? {} : { details }) },
  )
}
