/** A provider in this process that repeats the last message, for contract tests. */
import { type Completion, type StreamChunk, toStreamChunks } from '../core/completion.ts'
import { GatewayError } from '../core/errors.ts'
import { NO_USAGE } from '../core/money.ts'
import type { Model, Provider, ProviderCall } from '../core/ports.ts'
import { textOfPart } from '../core/prompt.ts'

const MODEL: Model = {
  id: 'echo',
  family: 'echo',
  contextWindowTokens: 100_000,
  maxOutputTokens: 1000,
  price: { input: 1, output: 2 },
}
const EMBEDDING_MODEL: Model = { ...MODEL, id: 'echo-embedding', kind: 'embedding', price: { input: 1, output: 0 } }

export class EchoProvider implements Provider {
  readonly name: string = 'contract'
  readonly dialect = 'chat'
  readonly models: readonly Model[] = [MODEL, EMBEDDING_MODEL]
  /** Length of the texts of a stream, in UTF-16 code units. */
  pieceLength: number = Infinity
  /** Text of the responses. Undefined repeats the last message. */
  response: string | undefined = undefined
  /** Number of calls that fail next. */
  failures: number = 0
  callCount: number = 0

  model(id: string): Model | undefined {
    return this.models.find((model) => model.id === id)
  }

  async complete(call: ProviderCall): Promise<{ readonly response: Completion; readonly ignored: readonly string[] }> {
    return { response: this.#response(call), ignored: [] }
  }

  async stream(
    call: ProviderCall,
  ): Promise<{ readonly response: AsyncIterable<StreamChunk>; readonly ignored: readonly string[] }> {
    return { response: this.#split(this.#response(call), call.signal), ignored: [] }
  }

  async embed({ request }: Parameters<NonNullable<Provider['embed']>>[0]): ReturnType<NonNullable<Provider['embed']>> {
    this.callCount++
    const { length } = request.inputs
    return { model: EMBEDDING_MODEL.id, embeddings: request.inputs.map(() => [0, 1]), inputTokens: length }
  }

  #response({ prompt, signal }: ProviderCall): Completion {
    signal.throwIfAborted()
    this.callCount++
    if (this.failures > 0) {
      this.failures--
      throw new GatewayError('upstream', 'The provider of the contract fails once.')
    }
    const text = this.response ?? (prompt.messages.at(-1)?.parts ?? []).map(textOfPart).join('')
    const usage = { ...NO_USAGE, inputTokens: 10, outputTokens: 5 }
    return { id: 'echo', model: MODEL.id, parts: [{ type: 'text', text }], finish: 'stop', usage }
  }

  /** Yields to the event loop after each chunk, so that concurrent streams alternate. */
  async *#split(completion: Completion, signal: AbortSignal): AsyncGenerator<StreamChunk, void, undefined> {
    for (const { parts } of toStreamChunks(completion)) {
      for (const part of parts) {
        const texts = part.type === 'text-delta' ? piecesOf(part.text, this.pieceLength) : [undefined]
        for (const text of texts) {
          signal.throwIfAborted()
          await Promise.resolve()
          yield { parts: [text === undefined ? part : { type: 'text-delta', text }] }
        }
      }
    }
  }
}

function piecesOf(text: string, length: number): readonly string[] {
  if (text.length <= length) return [text]
  return Array.from({ length: Math.ceil(text.length / length) }, (_, index) =>
    text.slice(index * length, (index + 1) * length),
  )
}
