import {
  type CanForward,
  type StreamReader,
  type StreamFormat,
  searchBytes,
  type StreamPart,
  type Completion,
  type SseEvent,
  type StreamChunk,
  type Usage,
} from '../core/answer.ts'
import { GatewayError } from '../core/errors.ts'
import { textOfPart } from '../core/prompt.ts'
import { createCollector, type Collector } from '../core/stream-chunks.ts'
import type { StreamWriter } from '../formats/format.ts'
import { joinBytes } from '../http/body.ts'
import { createSseParser, writeSseEvent, type SseParser } from '../http/sse.ts'
import { ReceivedAnswer } from './received-answer.ts'

/** Complete events, as sent to the caller. */
export type TranslatedChunk = Uint8Array | string

/** Maximum size of a complete answer, in bytes. */
const MAX_BYTES = 32 * 1024 * 1024

export interface TranslatorOptions {
  /** The upstream's format. Absent for providers that produce chunks. */
  readonly format?: StreamFormat | undefined
  readonly writer: StreamWriter
  /**
   * True if the caller and the upstream use the same format. Plain events are then relayed unchanged. @default false
   */
  readonly isSameFormat?: boolean
  /** True if events have ids, counted from 1. A client can then resume after any event. */
  readonly isNumbered: boolean
  /** Throws for an event that must not be parsed. */
  readonly checkEvent?: (data: string) => void
  /** Returns the failure of a faulty stream. `what` completes "The provider …". */
  readonly broken: (what: string, cause?: unknown) => GatewayError
}

/**
 * Translates an upstream's stream for the caller. Collects the answer for the bill, the cache and recordings.
 *
 * If both sides use the same format, the received bytes of plain events after the first content are relayed.
 * `ReceivedAnswer` stores these bytes for the completion.
 */
export class AnswerTranslator {
  /** The upstream's id of the answer. */
  answerId: string | undefined = undefined
  /** True after the first event with visible content. */
  hasContent = false
  /** True after the protocol's last event. */
  isComplete = false
  /** The failure of an event that followed valid events in the same chunk. Later bytes are ignored. */
  failure: unknown = undefined

  readonly writer: StreamWriter
  readonly #options: TranslatorOptions
  readonly #reader: StreamReader | undefined
  readonly #canForward: CanForward | undefined
  readonly #parser: SseParser | undefined
  readonly #collected: Collector = createCollector()
  /** Absent if every event is parsed. */
  readonly #received: ReceivedAnswer | undefined
  #size = 0
  #hasAnswer = false
  /** True while the parser contains the beginning of an event. */
  #isOpen = false
  #endsInLineFeed = false
  #hasRelayed = false
  #events = 0

  constructor(options: TranslatorOptions) {
    this.#options = options
    this.writer = options.writer
    this.#reader = options.format?.createReader()
    this.#parser = this.#reader && createSseParser(MAX_BYTES)
    this.#canForward = options.isSameFormat === true ? options.format?.canForward : undefined
    this.#received = this.#canForward && options.format && new ReceivedAnswer(options.format.createReader())
  }

  /**
   * Reads bytes from the upstream, which can be split at any position. Returns the events that can be sent. Throws
   * `upstream` for a faulty stream. If valid events precede the fault, returns these events and sets `failure`.
   */
  push(bytes: Uint8Array): TranslatedChunk {
    const chunks: TranslatedChunk[] = []
    try {
      this.#take(bytes, chunks)
    } catch (error) {
      if (chunks.length === 0) throw error
      this.failure = error
    }
    return joinChunks(chunks)
  }

  /** Reads a chunk from a provider without a wire format. */
  pushChunk(chunk: StreamChunk): string {
    this.#note(chunk)
    return this.#number(this.#options.writer.write(chunk))
  }

  /** Called at the end of the upstream's body. Throws `upstream` if the answer is incomplete. */
  finish(): string {
    const events = this.#parser?.end() ?? []
    if (this.#hasRelayed) this.#received?.read(true)
    let text = ''
    for (const event of events) text += this.#translate(event)
    if (this.isComplete) return text
    if (this.#reader !== undefined && this.#reader.isComplete?.() !== true) {
      throw this.#options.broken('ended its stream before the answer was complete')
    }
    return text + this.pushChunk({ parts: [{ type: 'done' }] })
  }

  /** True once the upstream has sent a finish reason. */
  get hasFinishReason(): boolean {
    return this.#collected.hasFinishReason()
  }

  /** True if the answer received so far has text, thinking or a tool call. */
  get hasText(): boolean {
    if (this.#hasRelayed) return true
    const { parts, furtherText = '' } = this.completion()
    return furtherText !== '' || parts.some((part) => textOfPart(part) !== '')
  }

  get usage(): Usage | undefined {
    return this.#collected.completion().usage
  }

  completion(): Completion {
    const received = this.#hasRelayed ? this.#received?.read() : undefined
    return (received ?? this.#collected).completion()
  }

  /** Serializes the events that end the stream: the last events of the answer, or an error. */
  write(events: readonly SseEvent[]): string {
    return this.#number(events)
  }

  #take(bytes: Uint8Array, chunks: TranslatedChunk[]): void {
    this.#size += bytes.byteLength
    if (this.#size > MAX_BYTES) throw this.#options.broken('streamed an answer larger than 32 MiB')
    const canForward = this.#canForward
    this.#received?.add(bytes)
    if (canForward === undefined || this.#collected.hasFinishReason()) this.#parse(bytes, chunks)
    else this.#relay(bytes, canForward, chunks)
  }

  /** Splits the bytes into the end of an open event, complete events, and the beginning of the next event. */
  #relay(bytes: Uint8Array, canForward: CanForward, chunks: TranslatedChunk[]): void {
    const from = this.#isOpen ? endOfOpenEvent(bytes, this.#endsInLineFeed) : 0
    const to = from === -1 ? -1 : lastEventEnd(bytes, from)
    if (to <= from) return this.#parse(bytes, chunks)
    if (this.hasContent && to - from === bytes.length) return this.#relayEvents(bytes, canForward, chunks)
    if (from > 0) this.#parse(bytes.subarray(0, from), chunks)
    let rest = bytes.subarray(from, to)
    while (!this.hasContent && rest.length > 0) {
      const end = searchBytes(rest).find(EVENT_END) + EVENT_END.length
      this.#parse(rest.subarray(0, end), chunks)
      rest = rest.subarray(end)
    }
    this.#relayEvents(rest, canForward, chunks)
    if (to < bytes.length) this.#parse(bytes.subarray(to), chunks)
  }

  /**
   * Relays the bytes unparsed if all events are plain. Otherwise, halves them repeatedly until each part is plain or
   * short.
   */
  #relayEvents(events: Uint8Array, canForward: CanForward, chunks: TranslatedChunk[]): void {
    if (events.length === 0) return
    if (this.#collected.hasFinishReason()) return this.#parse(events, chunks)
    const search = searchBytes(events)
    if (canForward(search)) {
      this.#hasRelayed = true
      this.writer.observeForwarded?.(search)
      chunks.push(this.#options.isNumbered ? this.#numberBytes(events) : events)
      return
    }
    if (events.length <= MAX_PARSED_BYTES) return this.#parse(events, chunks)
    const middle = search.find(EVENT_END, (events.length >> 1) - 1) + EVENT_END.length
    const split = middle < events.length ? middle : search.find(EVENT_END) + EVENT_END.length
    if (split === events.length) return this.#parse(events, chunks)
    this.#relayEvents(events.subarray(0, split), canForward, chunks)
    this.#relayEvents(events.subarray(split), canForward, chunks)
  }

  #parse(bytes: Uint8Array, chunks: TranslatedChunk[]): void {
    if (this.#parser === undefined) return
    let text = ''
    try {
      for (const event of this.#parser.read(bytes)) text += this.#translate(event)
    } finally {
      if (text !== '') chunks.push(text)
    }
    const last = bytes.at(-1)
    const beforeLast = bytes.length > 1 ? bytes.at(-2) : this.#endsInLineFeed ? LF : 0
    this.#isOpen = !(last === LF && beforeLast === LF)
    this.#endsInLineFeed = last === LF
  }

  #translate(event: SseEvent): string {
    // Events after the protocol's last event are dropped.
    if (this.isComplete || this.#reader === undefined) return ''
    this.#options.checkEvent?.(event.data)
    return this.pushChunk(this.#read(event, this.#reader))
  }

  /** Reads an event. Throws `upstream` for an event that cannot be parsed. */
  #read(event: SseEvent, reader: StreamReader): StreamChunk {
    try {
      return reader(event)
    } catch (error) {
      throw GatewayError.is(error) ? error : this.#options.broken('sent an event that cannot be parsed', error)
    }
  }

  #note(chunk: StreamChunk): void {
    for (const part of chunk.parts) {
      if (part.type === 'answer-start') this.answerId = part.id
      this.#hasAnswer ||= part.type !== 'done' && part.type !== 'usage'
      this.hasContent ||= isContent(part)
      if (part.type === 'done') this.isComplete = true
    }
    if (this.isComplete && !this.#hasAnswer) {
      throw this.#options.broken('ended its stream without an answer')
    }
    this.#collected.add(chunk)
  }

  #number(events: readonly SseEvent[]): string {
    let text = ''
    for (const event of events) {
      text += this.#options.isNumbered ? writeSseEvent(event, String(++this.#events)) : writeSseEvent(event)
    }
    return text
  }

  #numberBytes(bytes: Uint8Array): TranslatedChunk {
    const search = searchBytes(bytes)
    const pieces: TranslatedChunk[] = []
    for (let start = 0; start < bytes.length;) {
      const end = search.find('\n\n', start) + 2
      pieces.push(`id: ${++this.#events}\n`, bytes.subarray(start, end))
      start = end
    }
    return joinChunks(pieces)
  }
}

const LF = 10
const EVENT_END = '\n\n'
/**
 * Maximum size of events that are parsed together, in bytes. Splitting smaller groups of events takes longer than
 * parsing them.
 */
const MAX_PARSED_BYTES = 256

/** Returns the index after the event that began in an earlier chunk, or -1 if the event does not end in this chunk. */
function endOfOpenEvent(bytes: Uint8Array, endsInLineFeed: boolean): number {
  if (endsInLineFeed && bytes[0] === LF) return 1
  const end = searchBytes(bytes).find('\n\n')
  return end === -1 ? -1 : end + 2
}

/** Returns the index after the last complete event, at least `from`. */
function lastEventEnd(bytes: Uint8Array, from: number): number {
  for (let at = bytes.length; at - 2 >= from; at--) {
    if (bytes[at - 1] === LF && bytes[at - 2] === LF) return at
  }
  return from
}

const encoder = new TextEncoder()

function joinChunks(chunks: readonly TranslatedChunk[]): TranslatedChunk {
  if (chunks.length === 1) return chunks[0] ?? ''
  const [first = '', ...others] = chunks.filter((chunk) => chunk.length > 0)
  if (others.length === 0) return first
  const pieces = chunks.map((chunk) => (typeof chunk === 'string' ? encoder.encode(chunk) : chunk))
  return joinBytes(
    pieces,
    pieces.reduce((size, piece) => size + piece.byteLength, 0),
  )
}

/** The starts of answers and blocks, empty text, and usage are not content. */
function isContent(part: StreamPart): boolean {
  switch (part.type) {
    case 'answer-start':
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
