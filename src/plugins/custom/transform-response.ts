/** Passes responses through the transformers of plugins: whole ones as the parts of a stream. */
import {
  Collector,
  type Completion,
  type FinishReason,
  type SseEvent,
  type StreamChunk,
  type StreamPart,
  toStreamChunks,
} from '../../core/completion.ts'
import type { GatewayError } from '../../core/errors.ts'
import type { Part } from '../../core/prompt.ts'
import type { StreamWriter, WriteMetrics } from '../../formats/format.ts'
import type { ContentPart, Plugin, ResponseTransformer, TransformedPart } from '../../kernel/plugin.ts'
import type { ResponseStop } from '../../kernel/plugin-run.ts'

/** Returns the failure of the response, or undefined if it continues without the transformer. */
export type OnTransformerFailure = (plugin: Plugin, cause: unknown) => GatewayError | undefined

interface ActiveTransformer {
  readonly plugin: Plugin
  readonly transformer: ResponseTransformer
}

const MAX_PARTS = 10_000
/** In UTF-16 code units. */
const MAX_TEXT_LENGTH = 32 * 1024 * 1024

/** The transformers of one response. The last plugin of the list is nearest to the upstream. */
export class TransformerChain {
  stop: ResponseStop | undefined
  readonly #transformers: (ActiveTransformer | undefined)[]
  readonly #onFailure: OnTransformerFailure
  #output: ContentPart[] = []
  #openBlock: 'text' | 'thinking' | undefined
  #textLength = 0

  constructor(transformers: readonly ActiveTransformer[], onFailure: OnTransformerFailure) {
    this.#transformers = [...transformers]
    this.#onFailure = onFailure
  }

  write(part: ContentPart): readonly ContentPart[] {
    if (this.stop === undefined) this.#pass(part, 0)
    return this.#takeOutput()
  }

  /** Returns the parts that the transformers have held back. */
  end(): readonly ContentPart[] {
    this.#endFrom(0)
    return this.#takeOutput()
  }

  #endFrom(first: number): void {
    for (let index = first; index < this.#transformers.length; index++) {
      if (this.stop !== undefined && 'failure' in this.stop) return
      this.#call(index, undefined, ({ end }, transformer) => end?.call(transformer) ?? [])
    }
  }

  #pass(part: ContentPart, index: number): void {
    if (index === this.#transformers.length) return this.#emit(part)
    this.#call(index, part, ({ write }, transformer) => write?.call(transformer, part))
  }

  #call(
    index: number,
    part: ContentPart | undefined,
    transform: (methods: ResponseTransformer, transformer: ResponseTransformer) => TransformedPart,
  ): void {
    const active = this.#transformers[index]
    const next = index + 1
    if (active === undefined) {
      if (part !== undefined) this.#pass(part, next)
      return
    }
    let result: Transformed
    try {
      result = readTransformed(transform(active.transformer, active.transformer), part)
      for (const { length } of result.parts.map(textOf)) this.#textLength += length
      if (this.#textLength > MAX_TEXT_LENGTH * this.#transformers.length) throw new Error('It returned too much text.')
    } catch (cause) {
      const failure = this.#onFailure(active.plugin, cause)
      if (failure !== undefined) return void (this.stop ??= { failure })
      // What the transformer has held back is lost with it.
      this.#transformers[index] = undefined
      if (part !== undefined) this.#pass(part, next)
      return
    }
    for (const passed of result.parts) if (!this.#hasFailed) this.#pass(passed, next)
    const { finish } = result
    if (finish === undefined || this.stop !== undefined) return
    this.stop = { finish }
    this.#endFrom(next)
  }

  get #hasFailed(): boolean {
    return this.stop !== undefined && 'failure' in this.stop
  }

  /** Opens a block for a delta that a transformer moved out of its block. */
  #emit(part: ContentPart): void {
    const kind = part.type.startsWith('text') ? 'text' : part.type.startsWith('thinking') ? 'thinking' : undefined
    if ((part.type === 'text-delta' || part.type === 'thinking-delta') && kind !== this.#openBlock) {
      this.#output.push(part.type === 'text-delta' ? { type: 'text-start' } : { type: 'thinking-start' })
    }
    if (part.type !== 'tool-call-delta') this.#openBlock = kind
    this.#output.push(part)
  }

  #takeOutput(): readonly ContentPart[] {
    const output = this.#output
    this.#output = []
    return output
  }
}

interface Transformed {
  readonly parts: readonly ContentPart[]
  readonly finish?: FinishReason
}

function readTransformed(returned: TransformedPart, part: ContentPart | undefined): Transformed {
  if (returned === undefined || returned === null) return { parts: part === undefined ? [] : [part] }
  if (Array.isArray(returned)) return { parts: checkContent(returned as readonly ContentPart[], part) }
  if (typeof returned !== 'object') throw new Error('Expected a part, a list of parts or an ending.')
  if ('type' in returned) return { parts: checkContent([returned], part) }
  const { finish, parts = [] } = returned as { readonly finish: FinishReason; readonly parts?: readonly ContentPart[] }
  if (!FINISH_REASONS.has(finish))
    throw new Error('finish: expected stop, length, tool-call, stop-sequence or filtered.')
  if (!Array.isArray(parts)) throw new Error('parts: expected a list of parts.')
  return { finish, parts: checkContent(parts, part) }
}

export const FINISH_REASONS: ReadonlySet<unknown> = new Set([
  'stop',
  'length',
  'tool-call',
  'stop-sequence',
  'filtered',
  'pause',
])

function checkContent(parts: readonly ContentPart[], received: ContentPart | undefined): readonly ContentPart[] {
  if (parts.length > MAX_PARTS) throw new Error(`Expected at most ${MAX_PARTS} parts.`)
  for (const part of parts) {
    if (part !== received && !isContentPart(part)) throw new Error('Expected a part of a response.')
  }
  return parts
}

function isContentPart(part: ContentPart): boolean {
  if (typeof part !== 'object' || part === null) return false
  switch (part.type) {
    case 'text-start':
      return true
    case 'thinking-start':
      return part.redacted === undefined || typeof part.redacted === 'string'
    case 'text-delta':
      return typeof part.text === 'string'
    case 'thinking-delta':
      return [part.text, part.signature].every((field) => field === undefined || typeof field === 'string')
    case 'tool-call-start':
      return Number.isSafeInteger(part.index) && typeof part.id === 'string' && typeof part.name === 'string'
    case 'tool-call-delta':
      return Number.isSafeInteger(part.index) && typeof part.input === 'string'
    case 'image':
    case 'document':
      return typeof part.source === 'object'
    case 'opaque':
      return typeof part.native === 'object'
    default:
      return false
  }
}

function textOf(part: ContentPart): string {
  if (part.type === 'text-delta') return part.text
  if (part.type === 'thinking-delta') return part.text ?? ''
  return part.type === 'tool-call-delta' ? part.input : ''
}

/** Writes the transformed parts. The translator before it keeps the upstream's own parts for the bill and the cache. */
export class TransformingWriter implements StreamWriter {
  /** Called after a transformer has ended the response, but not before the current bytes are processed. */
  onStop: () => void = () => {}
  readonly fail?: NonNullable<StreamWriter['fail']>
  readonly #writer: StreamWriter
  readonly #createChain: () => TransformerChain
  #chain: TransformerChain | undefined
  #isContentOver = false

  constructor(writer: StreamWriter, createChain: () => TransformerChain) {
    this.#writer = writer
    this.#createChain = createChain
    if (writer.fail !== undefined) this.fail = (failure) => writer.fail?.(failure) ?? []
  }

  get stop(): ResponseStop | undefined {
    return this.#chain?.stop
  }

  write({ parts }: StreamChunk): readonly SseEvent[] {
    const written: StreamPart[] = []
    for (const part of parts) {
      if (this.stop !== undefined) break
      this.#add(part, written)
    }
    // Native events are not sent, because their content may differ from the transformed parts.
    return written.length === 0 ? [] : this.#writer.write({ parts: written })
  }

  #add(part: StreamPart, written: StreamPart[]): void {
    switch (part.type) {
      case 'response-start':
      case 'usage':
        return void written.push(part)
      case 'response-end':
      case 'done':
        this.#endContent(written)
        if (this.stop === undefined) written.push(part)
        break
      default:
        if (!this.#isContentOver) written.push(...this.#transformers.write(part))
    }
    if (this.stop === undefined) return
    if ('finish' in this.stop) written.push({ type: 'response-end', finish: this.stop.finish })
    this.#isContentOver = true
    queueMicrotask(() => this.onStop())
  }

  #endContent(written: StreamPart[]): void {
    if (this.#isContentOver) return
    this.#isContentOver = true
    written.push(...this.#transformers.end())
  }

  get #transformers(): TransformerChain {
    return (this.#chain ??= this.#createChain())
  }

  end(writeMetrics: WriteMetrics): readonly SseEvent[] {
    return this.#writer.end(writeMetrics)
  }
}

/** Returns the completion itself if the transformers leave it unchanged. Its native form is kept only then. */
export function transformCompletion(completion: Completion, chain: TransformerChain): Completion {
  const [received, transformed] = [new Collector(), new Collector()]
  for (const { parts } of toStreamChunks(completion)) {
    for (const part of parts) {
      if (
        part.type === 'response-start' ||
        part.type === 'usage' ||
        part.type === 'response-end' ||
        part.type === 'done'
      ) {
        continue
      }
      received.add({ parts: [part] })
      transformed.add({ parts: chain.write(part) })
    }
  }
  if (chain.stop === undefined) transformed.add({ parts: chain.end() })
  const { stop } = chain
  if (stop !== undefined && 'failure' in stop) throw stop.failure
  const before = received.completion().parts
  const after = transformed.completion().parts
  if (stop === undefined && JSON.stringify(before) === JSON.stringify(after)) return completion
  const { id, model, usage, finish, stopSequence } = completion
  return {
    id,
    model,
    parts: keepNative(completion.parts, before, after),
    finish: stop?.finish ?? finish,
    ...(stop === undefined && stopSequence !== undefined && { stopSequence }),
    ...(usage !== undefined && { usage }),
  }
}

/** Unchanged parts keep their native form, with fields such as citations. */
function keepNative(original: readonly Part[], before: readonly Part[], after: readonly Part[]): readonly Part[] {
  if (original.length !== before.length) return after
  return after.map((part, index) => {
    const kept = original[index]
    return kept !== undefined && JSON.stringify(before[index]) === JSON.stringify(part) ? kept : part
  })
}
