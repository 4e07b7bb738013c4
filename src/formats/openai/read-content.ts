import type { Json, JsonObject } from '../../core/json.ts'
import type { Native, Part } from '../../core/prompt.ts'
import { sourceOf } from '../data-url.ts'
import { arrayAt, badField, objectAt, stringAt } from '../fields.ts'

const MOST_PARTS = 1000

/** A message's content: one text, or an array of parts. */
export function readContent(content: Json | undefined, param: string): readonly Part[] {
  if (typeof content === 'string') return [{ type: 'text', text: content }]
  if (!Array.isArray(content)) throw badField(param, content, 'a string or an array of content parts')
  return arrayAt(content, param, MOST_PARTS).map((part, index) => readPart(part, `${param}[${index}]`))
}

function readPart(value: Json, param: string): Part {
  const block = objectAt(value, param, 'a content part: an object with a type')
  const native: Native = { dialect: 'openai', value: block }
  switch (stringAt(block['type'], `${param}.type`)) {
    case 'text':
      return { type: 'text', text: stringAt(block['text'], `${param}.text`), native }
    case 'refusal':
      return { type: 'text', text: stringAt(block['refusal'], `${param}.refusal`), native }
    case 'image_url': {
      const image = objectAt(block['image_url'], `${param}.image_url`, 'an object with a url')
      const url = stringAt(image['url'], `${param}.image_url.url`, 'an address or a data: URL')
      return { type: 'image', source: sourceOf(url), native }
    }
    case 'file':
      return readFile(objectAt(block['file'], `${param}.file`), native)
    default:
      return { type: 'opaque', native }
  }
}

/** A file that is neither given whole nor by its id is left to the upstream's judgement. */
function readFile(file: JsonObject, native: Native): Part {
  const title = typeof file['filename'] === 'string' ? { title: file['filename'] } : {}
  if (typeof file['file_id'] === 'string') {
    return { type: 'document', source: { type: 'file', id: file['file_id'] }, ...title, native }
  }
  const source = typeof file['file_data'] === 'string' ? sourceOf(file['file_data']) : undefined
  if (source?.type !== 'base64') return { type: 'opaque', native }
  return { type: 'document', source, ...title, native }
}
