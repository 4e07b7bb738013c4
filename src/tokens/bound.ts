import { asArray, isJsonObject, type JsonObject } from '../core/json.ts'
import type { Model } from '../core/model.ts'
import type { Part, Prompt } from '../core/prompt.ts'

/** Upper bounds of a prompt's tokens, computed without a tokenizer. */
export interface PromptWeight {
  /** UTF-8 bytes of the body without the base64 text of images. No tokenizer makes more tokens of a text than bytes. */
  readonly bytes: number
  readonly images: number
  /** Tokens that a vendor adds for the frame of the request, its messages and its tools. */
  readonly frame: number
  /** Tokens that a translation to another format can add. */
  readonly translation: number
}

/** Every vendor opens the prompt and the answer with a few tokens; some add a line of their own. */
const REQUEST_TOKENS = 64
const MESSAGE_TOKENS = 8
const TOOL_TOKENS = 16
/** Vendors explain to the model how tools are called. */
const TOOL_INSTRUCTION_TOKENS = 1000
/** The most tokens of one image, at the vendors of the catalog; `Model.imageTokens` names the exceptions. */
const IMAGE_TOKENS = 9600
/** Braces, quotes and field names that another format puts around a part or a tool, and around the request. */
const TRANSLATED_PART = 32
const TRANSLATED_TOOL = 32
const TRANSLATED_REQUEST = 32
/** An instruction in place of a setting that the other format does not have. */
const TRANSLATED_SHAPE = 128
/** The schema of the function that replaces a tool which takes one text. */
const CUSTOM_TOOL = 160
/** Base64 has 4 characters for 3 bytes; a byte that is not UTF-8 is replaced by a character of 3 bytes. */
const DECODED_GROWTH = 1.25
/** A number with an exponent can grow to 25 characters, the name of a call can appear three times, escaped. */
const EXPONENT_GROWTH = 22
const NAME_GROWTH = 18

/** Returns the bounds of a prompt whose body has `bytes` bytes. Visits objects and reads lengths only, no text. */
export function weighPrompt(prompt: Prompt, bytes: number): PromptWeight {
  const weight = { bytes, images: 0, frame: REQUEST_TOKENS, translation: 0 }
  for (const message of prompt.messages) {
    weight.frame += MESSAGE_TOKENS
    for (const part of message.parts) weighPart(part, weight)
  }
  if (prompt.tools.length > 0) weight.frame += TOOL_INSTRUCTION_TOKENS
  weight.frame += prompt.tools.length * TOOL_TOKENS
  weight.translation += TRANSLATED_REQUEST + prompt.tools.length * TRANSLATED_TOOL
  if (prompt.settings.shape?.type === 'json') weight.translation += TRANSLATED_SHAPE
  for (const { parameters, native } of prompt.tools) if (parameters === undefined) weighTool(native.value, weight, 0)
  return weight
}

/** A tool of another kind than a function, and tools within it: in other formats each carries the name of its group. */
function weighTool(tool: JsonObject, weight: Weighing, groupName: number): void {
  weight.translation += CUSTOM_TOOL + groupName
  const name = typeof tool['name'] === 'string' ? tool['name'].length : 0
  for (const inner of asArray(tool['tools'])) if (isJsonObject(inner)) weighTool(inner, weight, name)
}

/** Custom calls become functions whose one argument is JSON text; items may bring tools. */
function weighOpaque({ input, namespace, ...item }: JsonObject, weight: Weighing): void {
  if (typeof input === 'string') weight.translation += rewrittenInput(input)
  if (typeof namespace === 'string') weight.translation += namespace.length
  for (const tool of asArray(item['tools'])) if (isJsonObject(tool)) weighTool(tool, weight, 0)
}

interface Weighing {
  bytes: number
  images: number
  translation: number
}

function weighPart(part: Part, weight: Weighing): void {
  weight.translation += TRANSLATED_PART
  switch (part.type) {
    case 'image': {
      const data = imageData(part)
      if (data === undefined) return
      weight.images++
      weight.bytes -= data.length
      return
    }
    case 'document':
      if (part.source.type === 'base64' && part.source.mediaType.startsWith('text/')) {
        weight.bytes += Math.ceil(part.source.data.length * DECODED_GROWTH)
      }
      return
    case 'opaque':
      return weighOpaque(part.native.value, weight)
    case 'tool-call':
      if (typeof part.native?.value['namespace'] === 'string')
        weight.translation += part.native.value['namespace'].length
      weight.translation += rewrittenInput(part.input) + NAME_GROWTH * (part.name.length + part.id.length)
      return
    case 'tool-result':
      weight.translation += NAME_GROWTH * part.callId.length
      for (const inner of part.content) weighPart(inner, weight)
      return
    default:
  }
}

/** Arguments are an object in one format and JSON text in the others: each quote and backslash gains one more. */
function rewrittenInput(input: string): number {
  let growth = input.length
  for (const _ of input.matchAll(/\d[eE]/g)) growth += EXPONENT_GROWTH
  return growth
}

/** The base64 text of an image; undefined for an image that is given otherwise, and for what calls itself an image only. */
function imageData(part: Extract<Part, { readonly type: 'image' }>): string | undefined {
  const { source } = part
  return source.type === 'base64' && source.mediaType.startsWith('image/') ? source.data : undefined
}

/** The blocks of the body that hold images, each with its base64 text. */
export function imageBlocks(prompt: Prompt): ReadonlyMap<JsonObject, string> {
  const blocks = new Map<JsonObject, string>()
  const visit = (part: Part): void => {
    if (part.type === 'tool-result') part.content.forEach(visit)
    if (part.type !== 'image' || part.native === undefined) return
    const data = imageData(part)
    if (data !== undefined) blocks.set(part.native.value, data)
  }
  for (const message of prompt.messages) message.parts.forEach(visit)
  return blocks
}

/** The most tokens that any tokenizer makes of a prompt for this model. */
export function boundByBytes(weight: PromptWeight, model: Model, isTranslated: boolean): number {
  const written = weight.bytes + (isTranslated ? weight.translation : 0)
  return written + tokensBesideText(weight, model)
}

/** Returns what must be added to an exact count of the text: the frame and the images. */
export function tokensBesideText({ frame, images }: PromptWeight, model: Model): number {
  return frame + images * (model.imageTokens ?? IMAGE_TOKENS)
}

/** The prompt and its answer together never pass the window of the model itself. */
export function windowOf(model: Model): number {
  return model.upstreamWindow ?? model.contextWindow
}

/** The UTF-8 bytes of a text; a lone surrogate takes 3. */
export function utf8Length(text: string): number {
  let bytes = text.length
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code < 0x80) continue
    bytes += code < 0x800 ? 1 : 2
    const isPair = code >= 0xd800 && code < 0xdc00 && (text.charCodeAt(at + 1) & 0xfc00) === 0xdc00
    if (isPair) at++
  }
  return bytes
}
