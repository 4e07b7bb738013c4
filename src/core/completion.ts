import type { ByteSearch } from './byte-search.ts'
import { type Usage, NO_USAGE } from './money.ts'
import type { Dialect, DocumentPart, ImagePart, Native, Part, UpstreamDialect } from './prompt.ts'

/** The reason for the end of a response. After `pause`, the caller must continue the turn. */
export type FinishReason = 'stop' | 'length' | 'tool-call' | 'stop-sequence' | 'filtered' | 'pause'

/** A whole response of a model. */
export interface Completion {
  readonly id: string
  readonly model: string
  readonly parts: readonly Part[]
  /** Text of the output that no part contains. Counted for the bill if the reported usage may be incomplete. */
  readonly unmappedText?: string
  readonly finish: FinishReason
  readonly stopSequence?: string
  /** Absent if the upstream reported no usage. */
  readonly usage?: Usage
  /** The body of the response for clients of the same format. */
  readonly native?: Native
}

/** A server-sent event. */
export interface SseEvent {
  readonly event?: string
  readonly data: string
  readonly id?: string
}

/**
 * One part of a streamed response. A delta belongs to the block that the last `…-start` part of the same kind opened.
 * Exception: deltas of several tool calls may be interleaved. `index` counts the tool calls of the response from 0.
 * `native` is set only for a block that was received at once, in a body that is not a stream.
 */
export type StreamPart =
  | { readonly type: 'response-start'; readonly id: string; readonly model: string }
  | { readonly type: 'text-start'; readonly isRefusal?: boolean; readonly native?: Native }
  | { readonly type: 'text-delta'; readonly text: string }
  | { readonly type: 'thinking-start'; readonly redacted?: string; readonly native?: Native }
  | { readonly type: 'thinking-delta'; readonly text?: string; readonly signature?: string }
  | {
      readonly type: 'tool-call-start'
      readonly index: number
      readonly id: string
      readonly name: string
      readonly native?: Native
    }
  | { readonly type: 'tool-call-delta'; readonly index: number; readonly input: string }
  | ImagePart
  /** A file that is not an image, such as audio. */
  | DocumentPart
  /** A block or field that exists only in its own dialect. */
  | { readonly type: 'opaque'; readonly native: Native }
  /** Cumulative. The last value of each field is the total. */
  | { readonly type: 'usage'; readonly usage: Partial<Usage> }
  | { readonly type: 'response-end'; readonly finish: FinishReason; readonly stopSequence?: string }
  /** The protocol's last event. Without it, the response is incomplete unless `StreamReader.isComplete` returns true. */
  | { readonly type: 'done' }

/** What one event adds to a streamed response. */
export interface StreamChunk {
  readonly parts: readonly StreamPart[]
  /** The text that this event appends to `Completion.unmappedText`. */
  readonly unmappedText?: string
  /** The event for clients of the same format. */
  readonly native?: { readonly dialect: Dialect; readonly event: SseEvent }
}

/** Reads the events of one streamed response, in order. */
export interface StreamReader {
  (event: SseEvent): StreamChunk
  /** Returns true if only the protocol's last event is missing. Absent if that event is required. */
  readonly isComplete?: () => boolean
}

/** Returns true if an event can be forwarded without being parsed. */
export type CanForward = (search: ByteSearch) => boolean

/** How the bytes of a streamed response are read. */
export interface StreamFormat {
  readonly dialect: UpstreamDialect
  createReader(): StreamReader
  /** Absent if every event must be parsed. */
  readonly canForward?: CanForward
}

/** A streamed response. Pushes bytes in the wire format `format`, or parsed chunks if `format` is undefined. */
export interface ResponseSource {
  readonly format?: StreamFormat | undefined
  read(receiver: SourceReceiver): void
  /** Stops reading from the upstream until `resume` is called. */
  pause(): void
  resume(): void
  /** Reports that the protocol's last event has arrived. The connection can be reused once the body has ended. */
  complete(): void
  /** Closes the connection. The receiver is not called again. */
  abort(): void
}

/** Receives a streamed response. */
export interface SourceReceiver {
  onBytes(bytes: Uint8Array): void
  onChunk(chunk: StreamChunk): void
  onEnd(): void
  onError(error: unknown): void
}

/** A part, and the pieces of its text and signature. */
interface Block {
  readonly part: Part
  readonly pieces: string[]
  signaturePieces: string[] | undefined
}

export class Collector {
  readonly #blocks: Block[] = []
  readonly #unmappedTexts: string[] = []
  #id = ''
  #model = ''
  #calls: Map<number, Block> | undefined
  #text: Block | undefined
  #thinking: Block | undefined
  #usage: Partial<Usage> | undefined
  #finish: FinishReason | undefined
  #stopSequence: string | undefined

  add(chunk: StreamChunk): void {
    for (const part of chunk.parts) this.#addPart(part)
    if (chunk.unmappedText !== undefined) this.#unmappedTexts.push(chunk.unmappedText)
  }

  /** `finish` is `stop` until the upstream sends a finish reason. */
  completion(native?: Native): Completion {
    // An object literal with several spreads is many times slower.
    const completion: { -readonly [Name in keyof Completion]: Completion[Name] } = {
      id: this.#id,
      model: this.#model,
      parts: this.#blocks.map(toPart),
      finish: this.#finish ?? 'stop',
    }
    if (this.#unmappedTexts.length > 0) completion.unmappedText = this.#unmappedTexts.join('')
    if (this.#stopSequence !== undefined) completion.stopSequence = this.#stopSequence
    if (this.#usage !== undefined) completion.usage = { ...NO_USAGE, ...this.#usage }
    if (native !== undefined) completion.native = native
    return completion
  }

  hasFinishReason(): boolean {
    return this.#finish !== undefined
  }

  #addPart(part: StreamPart): void {
    switch (part.type) {
      case 'response-start':
        this.#id = part.id
        this.#model = part.model
        return
      case 'usage':
        this.#usage = this.#usage === undefined ? part.usage : { ...this.#usage, ...part.usage }
        return
      case 'response-end':
        this.#finish = part.finish
        this.#stopSequence = part.stopSequence
        return
      case 'done':
        return
      case 'text-start':
        this.#text = this.#add(
          part.isRefusal === true ? { type: 'text', text: '', isRefusal: true } : { type: 'text', text: '' },
          part.native,
        )
        return
      case 'text-delta':
        this.#text ??= this.#add({ type: 'text', text: '' })
        this.#text.pieces.push(part.text)
        return
      case 'thinking-start':
        this.#thinking = this.#add(
          part.redacted === undefined
            ? { type: 'thinking', text: '' }
            : { type: 'thinking', text: part.redacted, redacted: true },
          part.native,
        )
        return
      case 'thinking-delta':
        this.#thinking ??= this.#add({ type: 'thinking', text: '' })
        if (part.text !== undefined) this.#thinking.pieces.push(part.text)
        if (part.signature !== undefined) (this.#thinking.signaturePieces ??= []).push(part.signature)
        return
      case 'tool-call-start':
        this.#calls ??= new Map()
        this.#calls.set(
          part.index,
          this.#add({ type: 'tool-call', id: part.id, name: part.name, input: '' }, part.native),
        )
        return
      case 'tool-call-delta':
        this.#calls?.get(part.index)?.pieces.push(part.input)
        return
      case 'image':
      case 'document':
      case 'opaque':
        this.#add(part)
    }
  }

  #add(part: Part, native?: Native): Block {
    const block: Block = {
      part: native === undefined ? part : { ...part, native },
      pieces: [],
      signaturePieces: undefined,
    }
    this.#blocks.push(block)
    return block
  }
}

function toPart({ part, pieces, signaturePieces }: Block): Part {
  switch (part.type) {
    case 'text':
      return { ...part, text: pieces.join('') }
    case 'thinking': {
      if (part.redacted === true) return part
      const thinking = { ...part, text: pieces.join('') }
      return signaturePieces === undefined ? thinking : { ...thinking, signature: signaturePieces.join('') }
    }
    case 'tool-call':
      return { ...part, input: pieces.join('') }
    default:
      return part
  }
}

/** Returns the completion of a response that was received at once. */
export function collect(chunk: StreamChunk, native?: Native): Completion {
  const collector = new Collector()
  collector.add(chunk)
  return collector.completion(native)
}

export function isContentOrEnd(part: StreamPart): boolean {
  switch (part.type) {
    case 'response-start':
    case 'text-start':
    case 'thinking-start':
    case 'usage':
      return false
    case 'text-delta':
      return part.text !== ''
    default:
      return true
  }
}

/**
 * Returns a whole response as the chunks of a stream, for a provider whose upstream cannot stream.
 *
 * @example
 * const stream: Provider['stream'] = async (call) => {
 *   const { response, ignored } = await provider.complete(call)
 *   return { response: toAsyncIterable(toStreamChunks(response)), ignored }
 * }
 */
export function toStreamChunks(completion: Completion): readonly StreamChunk[] {
  const { id, model, parts, finish, stopSequence, usage } = completion
  const chunks: StreamChunk[] = [{ parts: [{ type: 'response-start', id, model }] }]
  let toolCallCount = 0
  for (const part of parts) {
    const streamParts = streamPartsOf(part, toolCallCount)
    if (part.type === 'tool-call') toolCallCount++
    if (streamParts.length > 0) chunks.push({ parts: streamParts })
  }
  if (usage !== undefined) chunks.push({ parts: [{ type: 'usage', usage }] })
  const end = stopSequence === undefined ? { finish } : { finish, stopSequence }
  chunks.push({ parts: [{ type: 'response-end', ...end }] }, { parts: [{ type: 'done' }] })
  return chunks
}

function streamPartsOf(part: Part, toolCallIndex: number): readonly StreamPart[] {
  switch (part.type) {
    case 'text': {
      const start = { type: 'text-start', ...(part.isRefusal === true && { isRefusal: true }) } as const
      return part.text === '' ? [start] : [start, { type: 'text-delta', text: part.text }]
    }
    case 'thinking':
      return thinkingParts(part)
    case 'tool-call': {
      const start = { type: 'tool-call-start', index: toolCallIndex, id: part.id, name: part.name } as const
      return part.input === '' ? [start] : [start, { type: 'tool-call-delta', index: toolCallIndex, input: part.input }]
    }
    case 'image':
    case 'opaque':
      return [part]
    case 'document':
      return [part.native === undefined ? part : { type: 'opaque', native: part.native }]
    case 'tool-result':
      return part.native === undefined ? [] : [{ type: 'opaque', native: part.native }]
  }
}

interface Thinking {
  readonly text: string
  readonly signature?: string | undefined
  readonly redacted?: boolean
}

export function thinkingParts({ text, signature, redacted }: Thinking): readonly StreamPart[] {
  if (redacted === true) return [{ type: 'thinking-start', redacted: text }]
  const parts: StreamPart[] = [{ type: 'thinking-start' }]
  if (text !== '') parts.push({ type: 'thinking-delta', text })
  if (signature !== undefined) parts.push({ type: 'thinking-delta', signature })
  return parts
}
