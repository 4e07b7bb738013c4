import { type Finish, promptTokens, type Usage } from '../../core/answer.ts'
import { asCount, asObject, type Json, type JsonObject } from '../../core/json.ts'

/** No answer has more tokens. A greater count is an upstream's mistake, which a budget must not pay for. */
const MAX_TOKENS = 1e9

/** Returns a count of tokens, or undefined for an implausible value. */
export function tokensOf(value: Json | undefined): number | undefined {
  const count = asCount(value)
  return count === undefined || count > MAX_TOKENS ? undefined : count
}

/**
 * Reads an upstream's usage in disjoint parts. `prompt_tokens` includes cached tokens. Undefined when the prompt or the
 * completion has no valid count: the gateway then counts.
 */
export function readUsage(value: Json | undefined): Usage | undefined {
  const usage = asObject(value)
  const prompt = tokensOf(usage?.['prompt_tokens'])
  const completion = tokensOf(usage?.['completion_tokens'])
  if (usage === undefined || prompt === undefined || completion === undefined) return undefined
  const inPrompt = asObject(usage['prompt_tokens_details'])
  const inCompletion = asObject(usage['completion_tokens_details'])
  const cached = tokensOf(inPrompt?.['cached_tokens']) ?? tokensOf(usage['prompt_cache_hit_tokens']) ?? 0
  const cacheRead = Math.min(prompt, cached)
  const cacheWrite = Math.min(prompt - cacheRead, tokensOf(inPrompt?.['cache_write_tokens']) ?? 0)
  const reasoning = tokensOf(inCompletion?.['reasoning_tokens']) ?? 0
  const output = completion + reasoningBeside(usage, prompt + completion, reasoning)
  return {
    inputTokens: prompt - cacheRead - cacheWrite,
    cacheReadTokens: cacheRead,
    cacheWriteTokens: cacheWrite,
    cacheWrite1hTokens: 0,
    outputTokens: output,
    reasoningTokens: Math.min(output, reasoning),
  }
}

/** Some vendors count reasoning in addition to the completion. Their total shows it. */
function reasoningBeside(usage: JsonObject, sum: number, reasoning: number): number {
  return reasoning > 0 && tokensOf(usage['total_tokens']) === sum + reasoning ? reasoning : 0
}

export function writeUsage(usage: Usage): JsonObject {
  const prompt = promptTokens(usage)
  const written = usage.cacheWriteTokens + usage.cacheWrite1hTokens
  return {
    prompt_tokens: prompt,
    completion_tokens: usage.outputTokens,
    total_tokens: prompt + usage.outputTokens,
    prompt_tokens_details: {
      cached_tokens: usage.cacheReadTokens,
      ...(written === 0 ? {} : { cache_write_tokens: written }),
    },
    completion_tokens_details: { reasoning_tokens: usage.reasoningTokens },
  }
}

const FINISHES: ReadonlyMap<string, Finish> = new Map([
  ['stop', 'stop'],
  ['length', 'length'],
  ['tool_calls', 'tool-call'],
  ['function_call', 'tool-call'],
  ['content_filter', 'filtered'],
])

const REASONS: Readonly<Record<Finish, string>> = {
  stop: 'stop',
  length: 'length',
  'tool-call': 'tool_calls',
  'stop-sequence': 'stop',
  filtered: 'content_filter',
  pause: 'stop',
}

/** Upstreams report `stop` for calls that `tool_choice` forced. The caller must run those calls as well. */
export function readFinish(reason: Json | undefined, hasCalls: boolean, isRefusal: boolean): Finish {
  if (isRefusal) return 'filtered'
  const finish = typeof reason === 'string' ? (FINISHES.get(reason) ?? 'stop') : 'stop'
  return finish === 'stop' && hasCalls ? 'tool-call' : finish
}

export function writeFinish(finish: Finish): string {
  return REASONS[finish]
}
