import { GatewayError } from '../../../src/core/errors.ts'
import type { Json, JsonObject } from '../../../src/core/json.ts'
import type { Prompt } from '../../../src/core/prompt.ts'
import type { WriteMetrics } from '../../../src/formats/format.ts'
import { chatClient } from '../../../src/formats/chat/client.ts'
import { chatUpstream } from '../../../src/formats/chat/upstream.ts'
import { parseBody } from '../../../src/formats/parse-body.ts'
import { bodyText } from '../../support/body-text.ts'

/** Returns the GatewayError that an action throws. */
export function failureOf(action: () => unknown): GatewayError {
  try {
    action()
  } catch (error) {
    if (GatewayError.is(error)) return error
    throw error
  }
  throw new Error('nothing was thrown')
}

/** Reads a prompt from the bytes of a body, as the pipeline does. */
export function promptOf(body: JsonObject | string): Prompt {
  const bytes = new TextEncoder().encode(typeof body === 'string' ? body : JSON.stringify(body))
  const parsed = parseBody(bytes)
  return chatClient.readPrompt(parsed.body, parsed.received)
}

/** Returns a small chat body with additional fields. */
export function chat(fields: JsonObject = {}): JsonObject {
  return { model: 'openai/gpt-4o', messages: [{ role: 'user', content: 'Hi' }], ...fields }
}

/** Returns the parsed body that is sent upstream. */
export function writeBody(prompt: Prompt, model = 'gpt-4o'): Record<string, Json | undefined> {
  return JSON.parse(bodyText(chatUpstream.writePrompt(prompt, model).body)) as Record<string, Json | undefined>
}

export const metrics: WriteMetrics = (kind) =>
  kind === 'details' ? svcMetrics : { savings_percent: 10, original_cost: 0.002, your_cost: 0.001 }

export const svcMetrics: JsonObject = {
  original_tokens: 20,
  optimized_tokens: 10,
  tokens_saved: 10,
  reduction_pct: 50,
  strategy: 'Passthrough (no optimization needed)',
  cache: 'MISS',
  theoretical_cost: 0.002,
  actual_cost: 0.001,
  billed_amount: 0.003,
  savings_usd: 0.001,
  profit_margin: 1.5,
}
