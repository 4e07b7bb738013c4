import { type Finish, type Frame, promptTokens, type Usage } from '../../core/answer.ts'
import { asObject, asString, type Json, type JsonObject } from '../../core/json.ts'
import { tokensOf } from '../chat/usage.ts'
import { GatewayError } from '../../core/errors.ts'
import { describeFailure } from '../failures.ts'

/** Reads an upstream's usage in disjoint parts. `input_tokens` includes cached tokens. */
export function readUsage(value: Json | undefined): Usage | undefined {
  const usage = asObject(value)
  const input = tokensOf(usage?.['input_tokens'])
  const output = tokensOf(usage?.['output_tokens'])
  if (usage === undefined || input === undefined || output === undefined) return undefined
  const inInput = asObject(usage['input_tokens_details'])
  const cacheRead = Math.min(input, tokensOf(inInput?.['cached_tokens']) ?? 0)
  const cacheWrite = Math.min(input - cacheRead, tokensOf(inInput?.['cache_write_tokens']) ?? 0)
  const reasoning = tokensOf(asObject(usage['output_tokens_details'])?.['reasoning_tokens']) ?? 0
  return {
    inputTokens: input - cacheRead - cacheWrite,
    cacheReadTokens: cacheRead,
    cacheWriteTokens: cacheWrite,
    cacheWrite1hTokens: 0,
    outputTokens: output,
    reasoningTokens: Math.min(output, reasoning),
  }
}

export function writeUsage(usage: Usage): JsonObject {
  const input = promptTokens(usage)
  const written = usage.cacheWriteTokens + usage.cacheWrite1hTokens
  return {
    input_tokens: input,
    input_tokens_details: {
      cached_tokens: usage.cacheReadTokens,
      ...(written === 0 ? {} : { cache_write_tokens: written }),
    },
    output_tokens: usage.outputTokens,
    output_tokens_details: { reasoning_tokens: usage.reasoningTokens },
    total_tokens: input + usage.outputTokens,
  }
}

/** Reads why a complete or partial answer ended. */
export function readFinish(response: JsonObject, has: { readonly calls: boolean; readonly refusal: boolean }): Finish {
  if (response['status'] === 'incomplete') {
    return asString(asObject(response['incomplete_details'])?.['reason']) === 'content_filter' ? 'filtered' : 'length'
  }
  if (has.calls) return 'tool-call'
  return has.refusal ? 'filtered' : 'stop'
}

interface Status {
  readonly status: 'completed' | 'incomplete'
  readonly incomplete_details: { readonly reason: string } | null
}

const INCOMPLETE: Readonly<Partial<Record<Finish, string>>> = {
  length: 'max_output_tokens',
  filtered: 'content_filter',
}

/** Writes how an answer ended as fields of a response. */
export function writeFinish(finish: Finish): Status {
  const reason = INCOMPLETE[finish]
  if (reason === undefined) return { status: 'completed', incomplete_details: null }
  return { status: 'incomplete', incomplete_details: { reason } }
}

/**
 * Returns the event that ends a broken stream. The fields are in `error`, as the vendor's servers send them, and at the
 * top level, as its documentation shows them. Clients read one or the other.
 */
export function failureFrame(failure: GatewayError, sequenceNumber: number): Frame {
  const { message, type, param, code } = describeFailure(failure)
  const fields = { code: code ?? type, message, param: param ?? null }
  const data = { type: 'error', sequence_number: sequenceNumber, ...fields, error: { type, ...fields } }
  return { event: 'error', data: JSON.stringify(data) }
}

/** Reads an upstream's error code. Its message is not passed on. */
export function failureOfResponse(holder: JsonObject): GatewayError {
  const error = asObject(holder['error']) ?? holder
  if (asString(error['code']) === 'rate_limit_exceeded') {
    return new GatewayError('upstream-rate-limited', 'The model provider allows no more requests at the moment.')
  }
  return new GatewayError('upstream', 'The model provider reported that it failed to answer. Retry later.')
}
