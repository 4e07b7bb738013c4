import type { Source } from '../core/prompt.ts'

const BASE64_MARK = ';base64'

/** `data:<media type>;base64,<data>` as its bytes, any other address as itself. */
export function sourceOf(url: string): Source {
  if (!url.startsWith('data:')) return { type: 'url', url }
  const comma = url.indexOf(',')
  const head = url.slice('data:'.length, comma)
  if (comma === -1 || !head.endsWith(BASE64_MARK)) return { type: 'url', url }
  const mediaType = head.slice(0, -BASE64_MARK.length).split(';')[0] ?? ''
  return { type: 'base64', mediaType, data: url.slice(comma + 1) }
}
