import { asArray, asObject, asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Message, Native, Part } from '../../core/prompt.ts'

/** Returns no items for a message that was rewritten or received in another format. */
export function itemsOf(message: Message): readonly JsonObject[] {
  if (message.native?.dialect !== 'responses') return []
  const { value } = message.native
  const isSingleItem = value['type'] !== undefined || value['role'] !== undefined
  return isSingleItem ? [value] : asArray(value['items']).filter(isJsonObject)
}

export function inputItems(input: Json | undefined): readonly Json[] {
  return typeof input === 'string' ? [{ role: 'user', content: input }] : asArray(input)
}

/** Ignores invalid fields, which upstreams may send. */
export function readReasoning(item: JsonObject, native: Native): Part {
  const { signature, redacted } = decodeReasoning(item['encrypted_content'])
  if (redacted !== undefined) return { type: 'thinking', text: redacted, redacted: true, native }
  return { type: 'thinking', text: reasoningTextOf(item), ...(signature === undefined ? {} : { signature }), native }
}

/** Between the parts of one reasoning item. */
export const REASONING_SEPARATOR = '\n'

export function reasoningTextOf(item: JsonObject): string {
  const pieces = asArray(item['content']).length > 0 ? item['content'] : item['summary']
  return asArray(pieces)
    .map((piece) => asString(asObject(piece)?.['text']) ?? '')
    .join(REASONING_SEPARATOR)
}

/** Prefixes that distinguish reasoning of other formats from the vendor's own `encrypted_content`. */
const SIGNATURE_PREFIX = 'svc-seal:'
const REDACTED_PREFIX = 'svc-cipher:'

interface OpaqueReasoning {
  readonly signature?: string
  readonly redacted?: string
}

/** Returns true for reasoning that only another vendor can read. */
export function isEncodedReasoning(item: JsonObject): boolean {
  const { signature, redacted } = decodeReasoning(item['encrypted_content'])
  return signature !== undefined || redacted !== undefined
}

export function decodeReasoning(content: unknown): OpaqueReasoning {
  if (typeof content !== 'string') return {}
  if (content.startsWith(SIGNATURE_PREFIX)) return { signature: content.slice(SIGNATURE_PREFIX.length) }
  return content.startsWith(REDACTED_PREFIX) ? { redacted: content.slice(REDACTED_PREFIX.length) } : {}
}

export function reasoningItem(id: string, text: string, { signature = '', redacted }: OpaqueReasoning): JsonObject {
  const summary = text === '' ? [] : [{ type: 'summary_text', text }]
  const encodedSignature = signature === '' ? undefined : SIGNATURE_PREFIX + signature
  const encrypted_content = redacted === undefined ? encodedSignature : REDACTED_PREFIX + redacted
  return { id, type: 'reasoning', summary, encrypted_content }
}

export function idStem(id: string): string {
  return id.replace(/^(?:req|resp|msg|chatcmpl)[_-]/, '').replace(/[^\w-]/g, '_') || '0'
}

export function responseId(stem: string): string {
  return `resp_${stem}`
}

/** Returns an id from which `responseIdOfItem` derives the id of the response. */
export function itemId(kind: 'msg' | 'fc' | 'rs' | 'ig', stem: string, index: number): string {
  return `${kind}_${stem}_${index}`
}

export function responseIdOfItem(id: string): string | undefined {
  const stem = /^(?:msg|fc|rs|ig)_([\w-]+)_\d+$/.exec(id)?.[1]
  return stem === undefined ? undefined : responseId(stem)
}
