import type { Completion } from '../core/answer.ts'
import { GatewayError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'

const FENCED_JSON = /^```(?:json)?\s*\n([\s\S]*?)\n?```$/

export function unwrapJson(completion: Completion): Completion {
  if (completion.finish !== 'stop') return completion
  const texts = completion.parts.flatMap((part) => (part.type === 'text' ? [part.text] : []))
  const text = texts.join('').trim()
  const json = FENCED_JSON.exec(text)?.[1] ?? text
  if (!isObjectText(json)) throw notJsonError()
  if (json === text) return completion
  const others = completion.parts.filter((part) => part.type !== 'text')
  return { ...completion, parts: [...others, { type: 'text', text: json }] }
}

function isObjectText(text: string): boolean {
  try {
    return isJsonObject(JSON.parse(text))
  } catch {
    return false
  }
}

function notJsonError(): GatewayError {
  return new GatewayError(
    'upstream',
    'The model did not answer with a JSON object. Retry, or request a JSON schema (type json_schema).',
  )
}
