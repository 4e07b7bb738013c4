/** All text of a request body, for exact counts. */
import { isJsonObject, MAX_DATA_URL_PREFIX_BYTES, type Json, type JsonObject } from '../core/json.ts'
import type { Part, Prompt } from '../core/prompt.ts'
import { imageData } from './estimate.ts'

/** Strings are unescaped, as in vendors' prompt templates, and base64 images are omitted. */
export function* textsOfBody(prompt: Prompt): Generator<string> {
  const images = imageBlocks(prompt)
  for (const [name, value] of Object.entries(prompt.native.value)) {
    if (!Array.isArray(value)) yield toUnescapedText({ [name]: value }, images)
    else for (const element of value as readonly Json[]) yield toUnescapedText(element, images)
  }
}

/** Joins all pieces at once, because joining at each depth copies nested text once per depth. */
function toUnescapedText(value: Json | undefined, images: ReadonlyMap<JsonObject, string>): string {
  const pieces: string[] = []
  const write = (item: Json | undefined): void => {
    if (typeof item === 'string') {
      pieces.push('"', item, '"')
    } else if (isJsonObject(item)) {
      const data = images.get(item)
      pieces.push('{')
      for (const [name, field] of Object.entries(item)) {
        pieces.push('"', name, '":')
        write(data === undefined ? field : removeImage(field, data))
        pieces.push(',')
      }
      pieces.push('}')
    } else if (Array.isArray(item)) {
      pieces.push('[')
      for (const element of item as readonly Json[]) {
        write(element)
        pieces.push(',')
      }
      pieces.push(']')
    } else {
      pieces.push(String(item))
    }
  }
  write(value)
  return pieces.join('')
}

/** The data may be the value itself, part of a data URL, or nested in an object. */
function removeImage(field: Json | undefined, data: string): Json | undefined {
  if (typeof field === 'string') {
    const isImage = field.length - data.length <= MAX_DATA_URL_PREFIX_BYTES && field.endsWith(data)
    return isImage ? field.slice(0, field.length - data.length) : field
  }
  if (!isJsonObject(field)) return field
  return Object.fromEntries(Object.entries(field).map(([name, nested]) => [name, removeImage(nested, data)]))
}

function imageBlocks(prompt: Prompt): ReadonlyMap<JsonObject, string> {
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
