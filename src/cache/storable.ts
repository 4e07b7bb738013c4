import type { Completion } from '../core/answer.ts'
import { asArray, asObject } from '../core/json.ts'

/** The beginning of a short answer in which a model refuses. */
const REFUSAL =
  /^(?:i(?:'|’)?m sorry,? (?:but )?i (?:can|won|am not|cannot)|i(?:'|’)?m (?:unable|not able) to|sorry, (?:but )?i (?:can|won)|i (?:cannot|can(?:'|’)t|won(?:'|’)t|will not) (?:help|assist|provide|comply|do that|create|write|answer|fulfill)|as an ai(?: language model)?,? i (?:can|am not|do not))/i
const MAX_REFUSAL_LENGTH = 600

/** Returns true for an answer that other requests may get: complete, plain text, not empty, no tool call, no refusal. */
export function isStorable(completion: Completion): boolean {
  if (completion.finish !== 'stop' && completion.finish !== 'stop-sequence') return false
  if (!completion.parts.every((part) => part.type === 'text' || part.type === 'thinking')) return false
  const text = completion.parts
    .map((part) => (part.type === 'text' ? part.text : ''))
    .join('')
    .trim()
  return text !== '' && !isRefusal(completion, text)
}

function isRefusal(completion: Completion, text: string): boolean {
  const marked = completion.parts.some((part) => part.native?.value['type'] === 'refusal')
  const said = asArray(completion.native?.value['choices']).some((choice) => {
    const refusal = asObject(asObject(choice)?.['message'])?.['refusal']
    return typeof refusal === 'string' && refusal !== ''
  })
  return marked || said || (text.length <= MAX_REFUSAL_LENGTH && REFUSAL.test(text))
}
