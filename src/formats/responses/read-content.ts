import { asString, type Json, type JsonObject } from '../../core/json.ts'
import type { Native, Part } from '../../core/prompt.ts'
import { sourceOf } from '../data-url.ts'
import { arrayAt, badField, objectAt, stringAt } from '../fields.ts'

const MOST_PARTS = 1000

/** The content of a message or the output of a tool: one text, or an array of parts. */
export function readContent(content: Json | undefined, param: string): readonly Part[] {
  if (typeof content === 'string') return [{ type: 'text', text: content }]
  if (!Array.isArray(content)) throw badField(param, content, 'a string or an array of content parts')
  return arrayAt(content, param, MOST_PARTS).map((part, index) => readPart(part, `${param}[${index}]`))
}

function readPart(value: Json, param: string): Part {
  const block = objectAt(value, param, 'a content part: an object with a type')
  const native: Native = { dialect: 'responses', value: block }
  switch (stringAt(block['type'], `${param}.type`)) {
    case 'input_text':
    case 'output_text':
      return { type: 'text', text: stringAt(block['text'], `${param}.text`), native }
    case 'refusal':
      return { type: 'text', text: stringAt(block['refusal'], `${param}.refusal`), native }
    case 'input_image':
      return readImage(block, native, param)
    case 'input_file':
      return readFile(block, native)
    default:
      return { type: 'opaque', native }
  }
}

function readImage(block: JsonObject, native: Native, param: string): Part {
  if (typeof block['file_id'] === 'string') {
    return { type: 'image', source: { type: 'file', id: block['file_id'] }, native }
  }
  const url = stringAt(block['image_url'], `${param}.image_url`, 'an address or a data: URL')
  return { type: 'image', source: sourceOf(url), native }
}

/** A file that is given in none of the known ways is left to the upstream's judgement. */
function readFile(block: JsonObject, native: Native): Part {
  const filename = asString(block['filename'])
  const title = filename === undefined ? {} : { title: filename }
  const { file_id: id, file_data: data, file_url: url } = block
  if (typeof id === 'string') return { type: 'document', source: { type: 'file', id }, ...title, native }
  if (typeof url === 'string') return { type: 'document', source: { type: 'url', url }, ...title, native }
  const source = typeof data === 'string' ? sourceOf(data) : undefined
  return source?.type === 'base64' ? { type: 'document', source, ...title, native } : { type: 'opaque', native }
}
