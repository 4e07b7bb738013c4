import type { Completion, Finish, Usage } from '../../core/answer.ts'
import { GatewayError } from '../../core/errors.ts'
import { asArray, asObject, asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Part } from '../../core/prompt.ts'
import { freshId, idOf } from '../fresh-ids.ts'
import { tokensOf } from '../openai/usage.ts'

/** An upstream's answer, read loosely. A prompt that was blocked has no candidates: its answer is empty and filtered. */
export function readCompletion(body: JsonObject): Completion {
  const candidate = asObject(asArray(body['candidates'])[0])
  const isBlocked = isPromptBlocked(body)
  if (candidate === undefined && !isBlocked) {
    throw new GatewayError('upstream', 'The model provider sent no answer: its body has no candidates.')
  }
  const parts = partsOf(candidate).flatMap(readPart)
  const usage = readUsage(body['usageMetadata'])
  return {
    id: asString(body['responseId']) ?? '',
    model: asString(body['modelVersion']) ?? '',
    parts,
    finish: isBlocked ? 'filtered' : readFinish(candidate?.['finishReason'], parts.some(isCall)),
    ...(usage !== undefined && { usage }),
  }
}

export function isPromptBlocked(body: JsonObject): boolean {
  return asString(asObject(body['promptFeedback'])?.['blockReason']) !== undefined
}

/** The parts of a candidate, or of a piece of one. */
export function partsOf(candidate: JsonObject | undefined): readonly JsonObject[] {
  return asArray(asObject(candidate?.['content'])?.['parts']).filter(isJsonObject)
}

/** One part; none for what only this vendor knows, such as code that it ran. */
export function readPart(part: JsonObject): readonly Part[] {
  const call = asObject(part['functionCall'])
  if (call !== undefined) {
    const id = idOf(call['id']) ?? freshId('call')
    return [{ type: 'tool-call', id, name: asString(call['name']) ?? '', input: JSON.stringify(call['args'] ?? {}) }]
  }
  const text = asString(part['text'])
  if (text === undefined || text === '') return []
  return [{ type: part['thought'] === true ? 'thinking' : 'text', text }]
}

function isCall(part: Part): boolean {
  return part.type === 'tool-call'
}

/**
 * The counts in disjoint parts: `promptTokenCount` contains the cached tokens, `candidatesTokenCount` excludes the
 * thoughts, and the results of the vendor's own tools are counted apart. Undefined without a count of the prompt.
 */
export function readUsage(value: Json | undefined): Usage | undefined {
  const usage = asObject(value)
  const prompt = tokensOf(usage?.['promptTokenCount'])
  if (usage === undefined || prompt === undefined) return undefined
  const cached = Math.min(prompt, tokensOf(usage['cachedContentTokenCount']) ?? 0)
  const thoughts = tokensOf(usage['thoughtsTokenCount']) ?? 0
  return {
    inputTokens: prompt - cached + (tokensOf(usage['toolUsePromptTokenCount']) ?? 0),
    cacheReadTokens: cached,
    cacheWriteTokens: 0,
    cacheWrite1hTokens: 0,
    outputTokens: (tokensOf(usage['candidatesTokenCount']) ?? 0) + thoughts,
    reasoningTokens: thoughts,
  }
}

const FINISHES: ReadonlyMap<string, Finish> = new Map([
  ['MAX_TOKENS', 'length'],
  ['SAFETY', 'filtered'],
  ['RECITATION', 'filtered'],
  ['BLOCKLIST', 'filtered'],
  ['PROHIBITED_CONTENT', 'filtered'],
  ['SPII', 'filtered'],
  ['IMAGE_SAFETY', 'filtered'],
])

/** A tool call that the vendor could not read is its failure: an empty answer would hide it. */
export function readFinish(reason: Json | undefined, hasCalls: boolean): Finish {
  if (reason === 'MALFORMED_FUNCTION_CALL') {
    throw new GatewayError('upstream', 'The model wrote a tool call that cannot be read. Send the request again.')
  }
  const finish = typeof reason === 'string' ? (FINISHES.get(reason) ?? 'stop') : 'stop'
  return finish === 'stop' && hasCalls ? 'tool-call' : finish
}
