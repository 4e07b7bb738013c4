import { decodeUtf8 } from '../../core/http.ts'
import { asArray, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { ReceivedBody } from '../../core/prompt.ts'
import { elementTexts, memberSpan, memberText, replaceMembers } from '../../core/splice-json.ts'
import { MAX_SPLICED_TEXT_BYTES } from '../parse-body.ts'

/** The JSON texts of items as received. They keep numbers that the parsed items cannot represent. */
export class ItemTexts {
  readonly #texts = new Map<Json, string>()

  /** `text` is the JSON text of the list. */
  add(items: readonly Json[], text: string | undefined): void {
    const texts = text === undefined ? undefined : elementTexts(text)
    if (texts?.length !== items.length) return
    items.forEach((item, index) => isJsonObject(item) && this.#texts.set(item, texts[index] ?? ''))
  }

  /** Serializes items whose text is unknown. */
  write(items: readonly Json[]): string {
    return `[${items.map((item) => this.#texts.get(item) ?? JSON.stringify(item)).join(',')}]`
  }
}

/** Returns a body whose references have been resolved, with its other fields and its unchanged items as received. */
export function writeResolved(
  { input, previous_response_id: previousId }: JsonObject,
  original: JsonObject,
  received: ReceivedBody,
  texts: ItemTexts,
): ReceivedBody | undefined {
  const text = textOf(received)
  texts.add(asArray(original['input']), memberText(text, 'input'))
  const removed = previousId === undefined ? { previous_response_id: undefined } : {}
  const resolved = replaceMembers(text, { input: texts.write(asArray(input)), ...removed })
  return resolved === undefined ? undefined : toReceivedBody(resolved)
}

/** Returns the text of the input items of a request. */
export function inputText(received: ReceivedBody, input: Json | undefined): string | undefined {
  const text = memberText(textOf(received), 'input')
  return text !== undefined && typeof input === 'string' ? `[{"role":"user","content":${text}}]` : text
}

function textOf({ text, bytes }: ReceivedBody): string {
  return text ?? decodeUtf8(bytes)
}

const encoder = new TextEncoder()
/** Also finds such digits inside strings. */
const MAYBE_LONG_NUMBER = /\d{16}|\d[eE]|\d{8}\.\d{8}|\.\d{15}/

/** Returns undefined if the text is not an object with a model. The object must not repeat a key. */
function toReceivedBody(text: string): ReceivedBody | undefined {
  const span = memberSpan(text, 'model')
  if (span === undefined) return undefined
  const bytes = encoder.encode(text)
  const hasLongNumbers = MAYBE_LONG_NUMBER.test(text)
  if (bytes.length === text.length) {
    const isSplicedAsText = bytes.length <= MAX_SPLICED_TEXT_BYTES
    return { bytes, modelSpan: span, hasLongNumbers, ...(isSplicedAsText && { text }) }
  }
  const [start, end] = [span.start, span.end].map((index) => encoder.encode(text.slice(0, index)).length)
  return start === undefined || end === undefined ? undefined : { bytes, modelSpan: { start, end }, hasLongNumbers }
}
