import { NO_USAGE, promptTokens, type Finish, type Usage } from '../../core/answer.ts'
import { asArray, asCount, asObject, isJsonObject, type JsonObject } from '../../core/json.ts'

/** Work that the vendor counts separately: a summary of the conversation, the advice of another model. */
const COUNTED_APART: ReadonlySet<unknown> = new Set(['compaction', 'advisor_message'])

/**
 * Reads usage in disjoint parts, without missing and invalid counts. Adds the work that the vendor counts separately in
 * `iterations`, which is paid for too.
 */
export function readUsage(usage: JsonObject): Partial<Usage> {
  const iterations = asArray(usage['iterations']).filter(isJsonObject)
  const apart = iterations.filter((one) => COUNTED_APART.has(one['type']))
  return apart.map(readCounts).reduce(added, readCounts(usage))
}

function added(sum: Partial<Usage>, more: Partial<Usage>): Partial<Usage> {
  const names = Object.keys(NO_USAGE) as (keyof Usage)[]
  const sums = names.flatMap((name) => {
    const tokens = more[name]
    return tokens === undefined ? [] : [[name, (sum[name] ?? 0) + tokens] as const]
  })
  return { ...sum, ...Object.fromEntries(sums) }
}

/** `input_tokens` excludes the cached prompt, and `cache_creation` says how the written part is divided. */
function readCounts(usage: JsonObject): Partial<Usage> {
  const thinking = tokensOf(asObject(usage['output_tokens_details'])?.['thinking_tokens'])
  return {
    ...count('inputTokens', usage['input_tokens']),
    ...count('cacheReadTokens', usage['cache_read_input_tokens']),
    ...cacheWrites(usage),
    ...count('outputTokens', usage['output_tokens']),
    ...(thinking === undefined ? {} : { reasoningTokens: thinking }),
  }
}

/** No answer has more tokens. A greater count is an upstream's mistake, which a budget must not pay for. */
const MAX_TOKENS = 1e9

/** Returns a count of tokens, or undefined for an implausible value. */
function tokensOf(value: unknown): number | undefined {
  const count = asCount(value)
  return count === undefined || count > MAX_TOKENS ? undefined : count
}

function count<name extends keyof Usage>(name: name, value: unknown): Partial<Usage> {
  const tokens = tokensOf(value)
  return tokens === undefined ? {} : { [name]: tokens }
}

function cacheWrites(usage: JsonObject): Partial<Usage> {
  const total = tokensOf(usage['cache_creation_input_tokens'])
  const division = asObject(usage['cache_creation'])
  const hour = tokensOf(division?.['ephemeral_1h_input_tokens'])
  const minutes = tokensOf(division?.['ephemeral_5m_input_tokens'])
  if (total === undefined && hour === undefined && minutes === undefined) return {}
  const cacheWrite1hTokens = hour ?? 0
  return { cacheWriteTokens: Math.max(minutes ?? 0, (total ?? 0) - cacheWrite1hTokens), cacheWrite1hTokens }
}

/** Returns the sum of prompt and output tokens. */
export function totalTokens(usage: Usage): number {
  return promptTokens(usage) + usage.outputTokens
}

/** Writes usage in the fields of this format, and `total_tokens`. */
export function writeUsage(usage: Usage): JsonObject {
  return {
    input_tokens: usage.inputTokens,
    cache_creation_input_tokens: usage.cacheWriteTokens + usage.cacheWrite1hTokens,
    cache_read_input_tokens: usage.cacheReadTokens,
    cache_creation: {
      ephemeral_5m_input_tokens: usage.cacheWriteTokens,
      ephemeral_1h_input_tokens: usage.cacheWrite1hTokens,
    },
    output_tokens: usage.outputTokens,
    ...(usage.reasoningTokens === 0 ? {} : { output_tokens_details: { thinking_tokens: usage.reasoningTokens } }),
    total_tokens: totalTokens(usage),
  }
}

const FINISHES: ReadonlyMap<string, Finish> = new Map([
  ['end_turn', 'stop'],
  ['max_tokens', 'length'],
  ['model_context_window_exceeded', 'length'],
  ['stop_sequence', 'stop-sequence'],
  ['tool_use', 'tool-call'],
  ['pause_turn', 'pause'],
  ['refusal', 'filtered'],
])

const STOP_REASONS: Readonly<Record<Finish, string>> = {
  stop: 'end_turn',
  length: 'max_tokens',
  'stop-sequence': 'stop_sequence',
  'tool-call': 'tool_use',
  pause: 'pause_turn',
  filtered: 'refusal',
}

/** Reads the stop reason. An unknown reason counts as an ordinary end. */
export function readStopReason(reason: string): Finish {
  return FINISHES.get(reason) ?? 'stop'
}

export function writeStopReason(finish: Finish): string {
  return STOP_REASONS[finish]
}
