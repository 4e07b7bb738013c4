import { createByteSearch } from '../core/json.ts'
import type {
  CanForward,
  StreamReader,
  StreamFormat,
  StreamPart,
  Completion,
  SseEvent,
  StreamChunk,
  Usage,
} from '../core/answer.ts'
import { GatewayError } from '../core/errors.ts'
import { textOfPart } from '../core/prompt.ts'
import { Collector } from '../core/stream-chunks.ts'
import type { StreamWriter } from '../formats/format.ts'
import { joinBytes } from '../http/body.ts'
import { createSseParser, writeSseEvent, type SseParser } from '../http/sse.ts'
import { ReceivedAnswer } from './received-answer.ts'

/** Complete events, as sent to the caller. */
export type TranslatedChunk = Uint8Array | string

/** Maximum size of a complete answer, in bytes. */
const MAX_ANSWER_BYTES = 32 * 1024 * 1024

export interface TranslatorOptions {
  /** The upstream's format. Absent for providers that produce chunks. */
  readonly format?: StreamFormat | undefined
  readonly writer: StreamWriter
  /**
   * True if the caller and the upstream use the same format. Plain events are then forwarded unparsed. @default false
   */
  readonly isSameFormat?: boolean
  /** True if events have ids, counted from 1. A client can then resume after any event. */
  readonly isNumbered: boolean
  /** Throws for an event that must not be parsed. */
  readonly checkEvent?: (data: string) => void
  /** Returns the error for a faulty stream. `problem` completes "The provider …". */
  readonly toError: (problem: string, cause?: unknown) => GatewayError
}

/**
 * Translates an upstream's stream for the caller. Collects the answer for the bill, the cache and recordings.
 *
 * If both sides use the same format, the received bytes of plain events (those that `canForward` accepts) after the
 * first content are forwarded unparsed. `ReceivedAnswer` stores these bytes for the completion.
 */
export class AnswerTranslator {
  /** The upstream's id for the answer. */
  answerId: string | undefined = undefined
  /** True after the first event with content. See `isContent`. */
  hasContent = false
  /** True after the protocol's last event. */
  isComplete = false
  /** The error of an event that followed valid events in the same chunk. */
  failure: unknown = undefined

  readonly writer: StreamWriter
  readonly #options: TranslatorOptions
  readonly #reader: StreamReader | undefined
  readonly #canForward: CanForward | undefined
  readonly #parser: SseParser | undefined
  readonly #collector = new Collector()
  /** Absent if every event is parsed. */
  readonly #receivedAnswer: ReceivedAnswer | undefined
  #receivedBytes = 0
  #hasAnswer = false
  /** True while the parser contains the beginning of an event. */
  #hasOpenEvent = false
  #endsInLineFeed = false
  #hasForwarded = false
  #eventCount = 0

  constructor(options: TranslatorOptions) {
    this.#options = options
    this.writer = options.writer
    this.#reader = options.format?.createReader()
    this.#parser = this.#reader && createSseParser(MAX_ANSWER_BYTES)
    this.#canForward = options.isSameFormat === true ? options.format?.canForward : undefined
    this.#receivedAnswer = this.#canForward && options.format && new ReceivedAnswer(options.format.createReader())
  }

  /**
   * Reads bytes from the upstream, which can be split at any position. Returns the events that can be sent. Throws
   * `upstream` for a faulty stream. If valid events precede the fault, returns these events and sets `failure`.
   */
  push(bytes: Uint8Array): TranslatedChunk {
    const chunks: TranslatedChunk[] = []
    try {
      this.#process(bytes, chunks)
    } catch (error) {
      if (chunks.length === 0) throw error
      this.failure = error
    }
    return joinChunks(chunks)
  }

  /** Reads a chunk from a provider without a wire format. */
  pushChunk(chunk: StreamChunk): string {
    this.#collect(chunk)
    return this.write(this.#options.writer.write(chunk))
  }

  /** Returns the last events, at the end of the upstream's body. Throws `upstream` if the answer is incomplete. */
  finish(): string {
    const events = this.#parser?.end() ?? []
    if (this.#hasForwarded) this.#receivedAnswer?.read(true)
    let text = ''
    for (const event of events) text += this.#translate(event)
    if (this.isComplete) return text
    if (this.#reader !== undefined && this.#reader.isComplete?.() !== true) {
      throw this.#options.toError('ended its stream before the answer was complete')
    }
    return text + this.pushChunk({ parts: [{ type: 'done' }] })
  }

  /** True once the upstream has sent a finish reason. */
  get hasFinishReason(): boolean {
    return this.#collector.hasFinishReason()
  }

  /** True if the answer received so far has text, thinking or a tool call. */
  get hasOutput(): boolean {
    if (this.#hasForwarded) return true
    const { parts, unmappedText = '' } = this.completion()
    return unmappedText !== '' || parts.some((part) => textOfPart(part) !== '')
  }

  get usage(): Usage | undefined {
    return this.#collector.completion().usage
  }

  completion(): Completion {
    const received = this.#hasForwarded ? this.#receivedAnswer?.read() : undefined
    return (received ?? this.#collector).completion()
  }

  /** Serializes events for the caller, with ids if events are numbered. */
  write(events: readonly SseEvent[]): string {
    let text = ''
    for (const event of events) {
      text += this.#options.isNumbered ? writeSseEvent(event, String(++this.#eventCount)) : writeSseEvent(event)
    }
    return text
  }

  #process(bytes: Uint8Array, chunks: TranslatedChunk[]): void {
    this.#receivedBytes += bytes.byteLength
    if (this.#receivedBytes > MAX_ANSWER_BYTES) throw this.#options.toError('streamed an answer larger than 32 MiB')
    const canForward = this.#canForward
    this.#receivedAnswer?.add(bytes)
    if (canForward === undefined || this.#collector.hasFinishReason()) this.#parse(bytes, chunks)
    else this.#forwardPlainEvents(bytes, canForward, chunks)
  }

  /** Splits the bytes into the end of an open event, complete events, and the beginning of the next event. */
  #forwardPlainEvents(bytes: Uint8Array, canForward: CanForward, chunks: TranslatedChunk[]): void {
    const start = this.#hasOpenEvent ? endOfOpenEvent(bytes, this.#endsInLineFeed) : 0
    const end = start === -1 ? -1 : lastEventEnd(bytes, start)
    if (end <= start) return this.#parse(bytes, chunks)
    if (this.hasContent && end - start === bytes.length) return this.#forwardOrParse(bytes, canForward, chunks)
    if (start > 0) this.#parse(bytes.subarray(0, start), chunks)
    let events = bytes.subarray(start, end)
    while (!this.hasContent && events.length > 0) {
      const eventEnd = createByteSearch(events).find(EVENT_END) + EVENT_END.length
      this.#parse(events.subarray(0, eventEnd), chunks)
      events = events.subarray(eventEnd)
    }
    this.#forwardOrParse(events, canForward, chunks)
    if (end < bytes.length) this.#parse(bytes.subarray(end), chunks)
  }

  /**
   * Forwards the bytes unparsed if all events are plain. Otherwise, halves them repeatedly until each part is plain or
   * short.
   */
  #forwardOrParse(events: Uint8Array, canForward: CanForward, chunks: TranslatedChunk[]): void {
    if (events.length === 0) return
    if (this.#collector.hasFinishReason()) return this.#parse(events, chunks)
    const search = createByteSearch(events)
    if (canForward(search)) {
      this.#hasForwarded = true
      this.writer.observeForwarded?.(search)
      chunks.push(this.#options.isNumbered ? this.#addEventIds(events) : events)
      return
    }
    if (events.length <= MAX_PARSED_BYTES) return this.#parse(events, chunks)
    const middle = search.find(EVENT_END, (events.length >> 1) - 1) + EVENT_END.length
    const split = middle < events.length ? middle : search.find(EVENT_END) + EVENT_END.length
    if (split === events.length) return this.#parse(events, chunks)
    this.#forwardOrParse(events.subarray(0, split), canForward, chunks)
    this.#forwardOrParse(events.subarray(split), canForward, chunks)
  }

  #parse(bytes: Uint8Array, chunks: TranslatedChunk[]): void {
    if (this.#parser === undefined) return
    let text = ''
    try {
      for (const event of this.#parser.read(bytes)) text += this.#translate(event)
    } finally {
      if (text !== '') chunks.push(text)
    }
    const endsInLineFeed = bytes.at(-1) === LF
    const hasLineFeedBefore = bytes.length > 1 ? bytes.at(-2) === LF : this.#endsInLineFeed
    this.#hasOpenEvent = !(endsInLineFeed && hasLineFeedBefore)
    this.#endsInLineFeed = endsInLineFeed
  }

  #translate(event: SseEvent): string {
    // Events after the protocol's last event are dropped.
    if (this.isComplete || this.#reader === undefined) return ''
    this.#options.checkEvent?.(event.data)
    return this.pushChunk(this.#readEvent(event, this.#reader))
  }

  #readEvent(event: SseEvent, reader: StreamReader): StreamChunk {
    try {
      return reader(event)
    } catch (error) {
      throw GatewayError.is(error) ? error : this.#options.toError('sent an event that cannot be parsed', error)
    }
  }

  #collect(chunk: StreamChunk): void {
    for (const part of chunk.parts) {
      if (part.type === 'answer-start') this.answerId = part.id
      this.#hasAnswer ||= part.type !== 'done' && part.type !== 'usage'
      this.hasContent ||= isContent(part)
      if (part.type === 'done') this.isComplete = true
    }
    this.hasContent ||= chunk.unmappedText !== undefined
    if (this.isComplete && !this.#hasAnswer) throw this.#options.toError('ended its stream without an answer')
    this.#collector.add(chunk)
  }

  #addEventIds(bytes: Uint8Array): TranslatedChunk {
    const search = createByteSearch(bytes)
    const pieces: TranslatedChunk[] = []
    for (let start = 0; start < bytes.length;) {
      const end = search.find(EVENT_END, start) + EVENT_END.length
      pieces.push(`id: ${++this.#eventCount}\n`, bytes.subarray(start, end))
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
  const end = createByteSearch(bytes).find(EVENT_END)
  return end === -1 ? -1 : end + EVENT_END.length
}

/** Returns the index after the last complete event, or `start` if no event is complete. */
function lastEventEnd(bytes: Uint8Array, start: number): number {
  for (let end = bytes.length; end - 2 >= start; end--) {
    if (bytes[end - 1] === LF && bytes[end - 2] === LF) return end
  }
  return start
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

/** Returns false for usage, empty text, and the starts of an answer, a text and a thinking block. */
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
