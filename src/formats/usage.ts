import { promptTokens, NO_USAGE, type ModelTokens, type ServiceTiers, type Usage } from '../core/money.ts'
import type { FinishReason } from '../core/completion.ts'
import { nameSet } from './parse-body.ts'
import { asArray, asCount, asObject, asString, isJsonObject, type Json, type JsonObject } from '../core/json.ts'

/** Maximum plausible token count. A higher count is treated as missing, so an upstream's mistake is not billed. */
const MAX_TOKENS = 1e9

export function asTokens(value: unknown): number | undefined {
  const count = asCount(value)
  return count === undefined || count > MAX_TOKENS ? undefined : count
}

const TIER_FIELDS = ['service_tier', 'speed', 'inference_geo'] as const
/** In UTF-16 code units. A longer value is not the name of a tier. */
const MAX_TIER_LENGTH = 64

const LIST_PRICE_VALUES = nameSet('default standard standard_only on_demand global not_available')

/** Returns the name in `Price.tiers`. `fast` is another name of the `service_tier` with the name `priority`, but the `speed` of this name is not. */
export function tierNameOf(field: string, value: string): string {
  if (field === 'inference_geo') return `${field}:${value}`
  return field === 'service_tier' && value === 'fast' ? 'priority' : value
}

/** Returns undefined if the fields contain no tier. */
export function readTiers(fields: JsonObject): ServiceTiers | undefined {
  let tiers: Record<string, string> | undefined
  for (const name of TIER_FIELDS) {
    const value = fields[name]
    if (typeof value === 'string' && value !== '' && value.length <= MAX_TIER_LENGTH)
      (tiers ??= {})[name] = LIST_PRICE_VALUES.has(value) ? '' : tierNameOf(name, value)
  }
  return tiers
}

interface UsageFieldNames {
  readonly prompt: string
  readonly promptDetails: string
  readonly completion: string
  readonly completionDetails: string
}

export const CHAT_USAGE_FIELDS: UsageFieldNames = {
  prompt: 'prompt_tokens',
  promptDetails: 'prompt_tokens_details',
  completion: 'completion_tokens',
  completionDetails: 'completion_tokens_details',
}

export const RESPONSE_USAGE_FIELDS: UsageFieldNames = {
  prompt: 'input_tokens',
  promptDetails: 'input_tokens_details',
  completion: 'output_tokens',
  completionDetails: 'output_tokens_details',
}

/** The returned prompt counts do not overlap. */
export function readUsage(value: Json | undefined, names: UsageFieldNames): Usage | undefined {
  const usage = asObject(value) ?? {}
  const prompt = asTokens(usage[names.prompt])
  const completion = asTokens(usage[names.completion])
  if (prompt === undefined || completion === undefined) return undefined
  const promptDetails = asObject(usage[names.promptDetails])
  const cached = asTokens(promptDetails?.['cached_tokens']) ?? asTokens(usage['prompt_cache_hit_tokens']) ?? 0
  const cacheRead = Math.min(prompt, cached)
  const cacheWrite = Math.min(prompt - cacheRead, asTokens(promptDetails?.['cache_write_tokens']) ?? 0)
  const reasoning = asTokens(asObject(usage[names.completionDetails])?.['reasoning_tokens']) ?? 0
  // Some vendors exclude reasoning from the completion count. The total then equals the sum of all three counts.
  const isSeparate =
    names === CHAT_USAGE_FIELDS && reasoning > 0 && asTokens(usage['total_tokens']) === prompt + completion + reasoning
  const output = isSeparate ? completion + reasoning : completion
  return {
    inputTokens: prompt - cacheRead - cacheWrite,
    cacheReadTokens: cacheRead,
    cacheWriteTokens: cacheWrite,
    cacheWrite1hTokens: 0,
    outputTokens: output,
    reasoningTokens: Math.min(output, reasoning),
  }
}

export function writeUsage(usage: Usage, names: UsageFieldNames): JsonObject {
  const cacheWrites = usage.cacheWriteTokens + usage.cacheWrite1hTokens
  return {
    [names.prompt]: promptTokens(usage),
    [names.completion]: usage.outputTokens,
    total_tokens: totalTokens(usage),
    [names.promptDetails]: {
      cached_tokens: usage.cacheReadTokens,
      ...(cacheWrites === 0 ? {} : { cache_write_tokens: cacheWrites }),
    },
    [names.completionDetails]: { reasoning_tokens: usage.reasoningTokens },
  }
}

export function totalTokens(usage: Usage): number {
  return promptTokens(usage) + usage.outputTokens
}

/** Vendor-side work that is counted separately: summaries of the conversation, and advice from another model. */
const SEPARATE_ITERATIONS: ReadonlySet<unknown> = new Set(['compaction', 'advisor_message'])

/** The fields that `readMessageUsage` reads, except `iterations`. */
export const MESSAGE_USAGE_FIELDS: readonly string[] = [
  'input_tokens',
  'output_tokens',
  'cache_read_input_tokens',
  'cache_creation_input_tokens',
  'cache_creation',
  'output_tokens_details',
  ...TIER_FIELDS,
]

export interface IterationUsage {
  readonly usage: Partial<Usage>
  /** True if the totals of the message are not added, because the iterations are all calls of the request. */
  readonly isComplete: boolean
}

export const NO_ITERATIONS: IterationUsage = { usage: {}, isComplete: false }

export function readMessageUsage(
  usage: JsonObject,
  iterations: IterationUsage = readIterations(usage['iterations']),
): Partial<Usage> {
  const counts = iterations.isComplete ? iterations.usage : addUsage(readMessageCounts(usage), iterations.usage)
  const tiers = readTiers(usage)
  return tiers === undefined ? counts : { ...counts, tiers }
}

export function readIterations(value: Json | undefined): IterationUsage {
  const iterations = asArray(value).filter(isJsonObject)
  if (iterations.length === 0) return NO_ITERATIONS
  const attempts = billedAttempts(iterations)
  const separate = iterations.filter((iteration) => SEPARATE_ITERATIONS.has(iteration['type']))
  const added = [...(attempts ?? []), ...separate]
  const models = added.flatMap(tokensOfModel)
  const usage = added.map(readMessageCounts).reduce(addUsage, {})
  return { usage: models.length === 0 ? usage : { ...usage, models }, isComplete: attempts !== undefined }
}

/**
 * Returns the calls of all models if a fallback answered, because the totals need not include the models that declined.
 * The vendor does not bill a model that declined without output.
 */
function billedAttempts(iterations: readonly JsonObject[]): readonly JsonObject[] | undefined {
  const serving = iterations.find(({ type }) => type === 'fallback_message')
  if (serving === undefined) return undefined
  return iterations.filter(
    (iteration) =>
      iteration === serving ||
      (iteration['type'] === 'message' &&
        (iteration['model'] === serving['model'] || asTokens(iteration['output_tokens']) !== 0)),
  )
}

function tokensOfModel(iteration: JsonObject): readonly ModelTokens[] {
  const model = asString(iteration['model'])
  return model === undefined ? [] : [{ model, usage: { ...NO_USAGE, ...readMessageCounts(iteration) } }]
}

type Counts = Partial<Omit<Usage, 'models' | 'tiers'>>

function addUsage(counts: Counts, { models, ...added }: Partial<Usage>): Partial<Usage> {
  const names = Object.keys(added) as (keyof Counts)[]
  const sums = Object.fromEntries(names.map((name) => [name, (counts[name] ?? 0) + (added[name] ?? 0)]))
  return { ...counts, ...sums, ...(models !== undefined && { models }) }
}

/** `input_tokens` excludes cached tokens. `cache_creation` splits the cache writes by duration. */
function readMessageCounts(usage: JsonObject): Counts {
  const counts: Mutable<Counts> = {}
  const set = (name: keyof Counts, value: unknown): void => {
    const tokens = asTokens(value)
    if (tokens !== undefined) counts[name] = tokens
  }
  set('inputTokens', usage['input_tokens'])
  set('cacheReadTokens', usage['cache_read_input_tokens'])
  setCacheWrites(counts, usage)
  set('outputTokens', usage['output_tokens'])
  set('reasoningTokens', asObject(usage['output_tokens_details'])?.['thinking_tokens'])
  return counts
}

type Mutable<T> = { -readonly [Name in keyof T]: T[Name] }

function setCacheWrites(counts: Mutable<Counts>, usage: JsonObject): void {
  const total = asTokens(usage['cache_creation_input_tokens'])
  const byDuration = asObject(usage['cache_creation'])
  const oneHourTokens = asTokens(byDuration?.['ephemeral_1h_input_tokens'])
  const fiveMinuteTokens = asTokens(byDuration?.['ephemeral_5m_input_tokens'])
  if (total === undefined && oneHourTokens === undefined && fiveMinuteTokens === undefined) return
  counts.cacheWriteTokens = Math.max(fiveMinuteTokens ?? 0, (total ?? 0) - (oneHourTokens ?? 0))
  counts.cacheWrite1hTokens = oneHourTokens ?? 0
}

export function writeMessageUsage(usage: Usage): JsonObject {
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

/** `promptTokenCount` includes cached tokens, and `candidatesTokenCount` excludes reasoning. */
export function readGeminiUsage(value: Json | undefined): Usage | undefined {
  const usage = asObject(value) ?? {}
  const prompt = asTokens(usage['promptTokenCount'])
  if (prompt === undefined) return undefined
  const cached = Math.min(prompt, asTokens(usage['cachedContentTokenCount']) ?? 0)
  const thoughts = asTokens(usage['thoughtsTokenCount']) ?? 0
  return {
    ...NO_USAGE,
    inputTokens: prompt - cached + (asTokens(usage['toolUsePromptTokenCount']) ?? 0),
    cacheReadTokens: cached,
    outputTokens: (asTokens(usage['candidatesTokenCount']) ?? 0) + thoughts,
    reasoningTokens: thoughts,
  }
}

const NAMES_BY_FINISH: readonly (readonly [finish: FinishReason, names: ReadonlySet<unknown>])[] = [
  ['length', nameSet('length max_tokens MAX_TOKENS model_context_window_exceeded')],
  // The vendor interrupted the response.
  ['length', nameSet('insufficient_system_resource network_error error abort OTHER')],
  ['tool-call', nameSet('tool_calls function_call tool_use')],
  ['stop-sequence', nameSet('stop_sequence')],
  ['pause', nameSet('pause_turn')],
  ['filtered', nameSet('refusal sensitive')],
  ['filtered', nameSet('SAFETY LANGUAGE RECITATION BLOCKLIST PROHIBITED_CONTENT SPII MODEL_ARMOR')],
  ['filtered', nameSet('IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION')],
]

const FINISH_REASONS: ReadonlyMap<unknown, FinishReason> = new Map(
  NAMES_BY_FINISH.flatMap(([finish, names]) => [...names].map((name) => [name, finish] as const)),
)

/** Some upstreams report `stop` for calls that `tool_choice` requires, but the caller must run these calls. */
export function readFinishReason(reason: Json | undefined, hasCalls = false, isRefusal = false): FinishReason {
  // Google's chat endpoint adds the cause, as in `content_filter: RECITATION`.
  if (isRefusal || (typeof reason === 'string' && reason.startsWith('content_filter'))) return 'filtered'
  const finish = FINISH_REASONS.get(reason) ?? 'stop'
  return finish === 'stop' && hasCalls ? 'tool-call' : finish
}

export function readResponseFinishReason(response: JsonObject, hasCalls: boolean, isRefusal: boolean): FinishReason {
  if (response['status'] !== 'incomplete') return hasCalls ? 'tool-call' : isRefusal ? 'filtered' : 'stop'
  return asString(asObject(response['incomplete_details'])?.['reason']) === 'content_filter' ? 'filtered' : 'length'
}

export const WIRE_REASONS: Readonly<
  Record<FinishReason, { readonly chat: string; readonly message: string; readonly incomplete?: string }>
> = {
  stop: { chat: 'stop', message: 'end_turn' },
  length: { chat: 'length', message: 'max_tokens', incomplete: 'max_output_tokens' },
  'tool-call': { chat: 'tool_calls', message: 'tool_use' },
  'stop-sequence': { chat: 'stop', message: 'stop_sequence' },
  filtered: { chat: 'content_filter', message: 'refusal', incomplete: 'content_filter' },
  pause: { chat: 'stop', message: 'pause_turn' },
}

export function writeResponseStatus(finish: FinishReason): {
  readonly status: 'completed' | 'incomplete'
  readonly incomplete_details: { readonly reason: string } | null
} {
  const reason = WIRE_REASONS[finish].incomplete
  return reason === undefined
    ? { status: 'completed', incomplete_details: null }
    : { status: 'incomplete', incomplete_details: { reason } }
}
