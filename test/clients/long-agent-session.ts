import { asArray, isJsonObject, type Json, type JsonObject } from '../../src/core/json.ts'
import { prose } from '../plugins/savings/conversation.ts'
import type { AgentSession } from '../plugins/savings/agent-sessions.ts'

const RESULT_WORDS = 420

/**
 * Makes a long session of the last request of a short one: its last exchange, repeated with other ids, and with long text
 * in place of the output of a tool. System prompt, tools and all other fields stay as the agent sent them.
 */
export function lengthen(
  name: string,
  body: JsonObject,
  { dialect, output }: { readonly dialect: 'anthropic' | 'responses'; readonly output: string },
): AgentSession {
  const field = dialect === 'responses' ? 'input' : 'messages'
  const items = asArray(body[field]).filter(isJsonObject)
  const start = items.findLastIndex(isQuestion)
  const exchange = items.slice(start)
  const answer: JsonObject =
    dialect === 'responses'
      ? { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'Both tools ran.' }] }
      : { role: 'assistant', content: [{ type: 'text', text: 'Both tools ran.' }] }
  const repeat = (count: number): readonly Json[] =>
    Array.from({ length: count }, (_, step) => [
      ...renewIds(exchange, step, output, step === count - 1),
      ...(step === count - 1 ? [] : [answer]),
    ]).flat()
  return {
    name,
    dialect,
    bodyAt: (count) => ({ ...body, [field]: [...items.slice(0, start), ...repeat(count)] }),
  }
}

function isQuestion({ role, content }: JsonObject): boolean {
  if (role !== 'user') return false
  return (
    typeof content === 'string' ||
    asArray(content).every((part) => isJsonObject(part) && part['type'] !== 'tool_result')
  )
}

const ID_FIELDS: ReadonlySet<string> = new Set(['id', 'call_id', 'tool_use_id'])

/** Markers stay in the last exchange only, because a vendor allows four of them. */
function renewIds(value: Json, step: number, output: string, isLast: boolean): Json[] {
  const renew = (one: Json | undefined, name: string): Json => {
    if (typeof one === 'string') {
      if (ID_FIELDS.has(name)) return `${one}_${step}`
      return one.replaceAll(output, `${output} ${prose(step, RESULT_WORDS)}`)
    }
    if (Array.isArray(one)) return one.map((item) => renew(item, ''))
    if (!isJsonObject(one)) return one ?? null
    const fields = Object.entries(one).filter(([field]) => isLast || field !== 'cache_control')
    return Object.fromEntries(fields.map(([field, item]) => [field, renew(item, field)]))
  }
  return asArray(value).map((item) => renew(item, ''))
}
