import type { Completion, StreamChunk } from '../../src/core/completion.ts'
import type { GatewayError } from '../../src/core/errors.ts'
import type { ProviderCall, Timeouts, Model } from '../../src/core/ports.ts'
import { textOfPart, type Prompt } from '../../src/core/prompt.ts'
import type { ManualRuntime } from './manual-runtime.ts'
import { readChunks } from './chunk-reader.ts'

export const timeouts: Timeouts = { connectMs: 10_000, firstByteMs: 120_000, idleMs: 60_000, totalMs: 600_000 }

export const testModel: Model = {
  id: 'model',
  family: 'test',
  contextWindowTokens: 128_000,
  maxOutputTokens: 4096,
  price: { input: 1, output: 2 },
}

/** Creates a provider call. Unless the test passes a signal, the caller never disconnects. */
export function providerCall(prompt: Prompt, runtime: ManualRuntime, more: Partial<ProviderCall> = {}): ProviderCall {
  return { prompt, runtime, model: testModel, signal: new AbortController().signal, timeouts, headers: {}, ...more }
}

/** Returns all chunks of a streamed response, read through a translator as the gateway does. */
export async function collectChunks(response: Parameters<typeof readChunks>[0]): Promise<readonly StreamChunk[]> {
  const all: StreamChunk[] = []
  for await (const chunk of readChunks(response)) all.push(chunk)
  return all
}

/** Joins the text deltas of chunks. */
export function textOf(chunks: readonly StreamChunk[]): string {
  return chunks
    .flatMap((chunk) => chunk.parts)
    .map((part) => (part.type === 'text-delta' ? part.text : ''))
    .join('')
}

export function textOfCompletion(completion: Completion): string {
  return completion.parts.map(textOfPart).join('')
}

/** Returns the error that a promise rejects with. Throws if it resolves. */
export async function failureOf(promise: Promise<unknown>): Promise<GatewayError> {
  const outcome = await promise.then(
    (value) => ({ value }),
    (error: unknown) => ({ error }),
  )
  if ('error' in outcome) return outcome.error as GatewayError
  throw new Error(`Resolved with ${JSON.stringify(outcome.value)} instead of failing`)
}
