import type { Json, JsonObject } from '../core/json.ts'

/** The longest head of a data URL: `data:image/png;base64,`. */
const MAX_HEAD = 200

/**
 * A body as the texts that a tokenizer would see, in pieces: each element of a list at the top is a piece of its own.
 * Strings are written unescaped, as the templates of vendors write them. The base64 text of images is left out.
 */
export function* rawPieces(body: JsonObject, images: ReadonlyMap<JsonObject, string>): Generator<string> {
  for (const [name, value] of Object.entries(body)) {
    if (!Array.isArray(value)) yield rawText({ [name]: value }, images)
    else for (const element of value as readonly Json[]) yield rawText(element, images)
  }
}

function rawText(value: Json | undefined, images: ReadonlyMap<JsonObject, string>): string {
  const pieces: string[] = []

  const write = (item: Json | undefined): void => {
    if (typeof item === 'string') pieces.push('"', item, '"')
    else if (Array.isArray(item)) writeList(item as readonly Json[])
    else if (typeof item === 'object' && item !== null) writeObject(item as JsonObject)
    else pieces.push(String(item))
  }

  const writeList = (items: readonly Json[]): void => {
    pieces.push('[')
    for (const item of items) {
      write(item)
      pieces.push(',')
    }
    pieces.push(']')
  }

  const writeObject = (fields: JsonObject): void => {
    const data = images.get(fields)
    pieces.push('{')
    for (const [name, field] of Object.entries(fields)) {
      pieces.push('"', name, '":')
      write(data === undefined ? field : withoutImage(field, data))
      pieces.push(',')
    }
    pieces.push('}')
  }

  write(value)
  return pieces.join('')
}

/** The field of an image's block that holds its base64 text, bare, in a data URL or in an object of its own. */
function withoutImage(field: Json | undefined, data: string): Json | undefined {
  if (typeof field === 'string') {
    const isImage = field.length - data.length <= MAX_HEAD && field.endsWith(data)
    return isImage ? field.slice(0, field.length - data.length) : field
  }
  if (typeof field !== 'object' || field === null || Array.isArray(field)) return field
  const entries = Object.entries(field as JsonObject).map(([name, inner]) => [name, withoutImage(inner, data)])
  return Object.fromEntries(entries)
}
