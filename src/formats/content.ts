import type { GatewayError } from '../core/errors.ts'
import type { Json } from '../core/json.ts'
import type { DocumentPart, Part, Source } from '../core/prompt.ts'
import { arrayAt, badField } from './fields.ts'

const MAX_PARTS = 1000

/** Reads the content of a message or a tool result: one text, or an array of parts. */
export function readContentParts(
  content: Json | undefined,
  param: string,
  readPart: (value: Json, param: string) => Part,
): readonly Part[] {
  if (typeof content === 'string') return [{ type: 'text', text: content }]
  if (!Array.isArray(content)) throw badField(param, content, 'a string or an array of content parts')
  return arrayAt(content, param, MAX_PARTS).map((part, index) => readPart(part, `${param}[${index}]`))
}

const BASE64_MARK = ';base64'

/** Returns the bytes of `data:<media type>;base64,<data>`, and any other URL as itself. */
export function urlSource(url: string): Source {
  if (!url.startsWith('data:')) return { type: 'url', url }
  const comma = url.indexOf(',')
  const head = url.slice('data:'.length, comma)
  if (comma === -1 || !head.endsWith(BASE64_MARK)) return { type: 'url', url }
  const mediaType = head.slice(0, -BASE64_MARK.length).split(';')[0] ?? ''
  return { type: 'base64', mediaType, data: url.slice(comma + 1) }
}

/** Returns the URL of a source, a data URL for bytes. Throws what `refuse` returns for the id of a stored file. */
export function urlOf(source: Source, refuse: (what: string) => GatewayError): string {
  switch (source.type) {
    case 'base64':
      return `data:${source.mediaType};base64,${source.data}`
    case 'url':
      return source.url
    case 'file':
      throw refuse('a file id of another vendor')
  }
}

/** Returns the text of a document with its title before it; undefined for a document that is not text. */
export function documentText({ source, title }: DocumentPart): string | undefined {
  if (source.type !== 'text') return undefined
  return title === undefined ? source.text : `${title}\n\n${source.text}`
}
