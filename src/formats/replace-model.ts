import type { JsonObject } from '../core/json.ts'
import { joinBytes } from '../core/http.ts'
import type { ReceivedBody } from '../core/prompt.ts'

export function replaceModel(received: ReceivedBody, model: string, addedFields: JsonObject = {}): string | Uint8Array {
  const { bytes, modelSpan, text } = received
  const fieldsStart = bytes.indexOf(OPEN_BRACE) + 1
  const fields = Object.keys(addedFields).length === 0 ? '' : `${JSON.stringify(addedFields).slice(1, -1)},`
  if (text !== undefined) {
    const start = text.slice(0, fieldsStart) + fields + text.slice(fieldsStart, modelSpan.start)
    return start + JSON.stringify(model) + text.slice(modelSpan.end)
  }
  return joinBytes([
    bytes.subarray(0, fieldsStart),
    encoder.encode(fields),
    bytes.subarray(fieldsStart, modelSpan.start),
    encoder.encode(JSON.stringify(model)),
    bytes.subarray(modelSpan.end),
  ])
}

const encoder: TextEncoder = new TextEncoder()

const OPEN_BRACE = 123
