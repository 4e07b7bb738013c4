import {
  type CanForward,
  type Completion,
  type SseEvent,
  type StreamChunk,
  type StreamFormat,
  type StreamReader,
  Collector,
  isContentOrEnd,
} from '../core/completion.ts'
import type { Usage } from '../core/money.ts'
import { GatewayError, withoutRetries } from '../core/errors.ts'
import { type ByteSearch, createByteSearch } from '../core/byte-search.ts'
import { isTooDeep, parseObject } from '../core/json.ts'
import { textOfPart } from '../core/prompt.ts'
import type { StreamWriter } from '../formats/format.ts'
import { allocateBytes, joinBytes } from '../core/http.ts'
import {
  createSseParser,
  findEventEnd,
  findLastEventEnd,
  findOpenEventEnd,
  type SseParser,
  writeSseEvent,
} from '../http/sse.ts'

/** Complete events, as sent to the caller. */
export type TranslatedChunk = Uint8Array | string

const MAX_RESPONSE_BYTES = 32 * 1024 * 1024

export interface TranslatorOptions {
  /** The upstream's format. Absent for providers that produce chunks. */
  readonly format?: StreamFormat | undefined
  readonly writer: StreamWriter
  /** True if events that `canForward` accepts may be sent to the caller without parsing. @default false */
  readonly mayForward?: boolean
  /** True if events have ids, counted from 1, with which a client can resume a stream. */
  readonly isNumbered: boolean
  readonly toError: (problem: string, cause?: unknown) => GatewayError
}

/** After the first content, may forward complete events to the caller without translating them. */
export class ResponseTranslator {
  responseId: string | undefined = undefined
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
  readonly #receivedResponse: ReceivedResponse | undefined
  #receivedBytes = 0
  #hasResponse = false
  /** True if the parser may contain the beginning of an event. */
  #hasOpenEvent = false
  #endsInLineFeed = false
  #hasForwarded = false
  #eventCount = 0

  constructor(options: TranslatorOptions) {
    this.#options = options
    this.writer = options.writer
    this.#reader = options.format?.createReader()
    this.#parser = this.#reader && createSseParser(MAX_RESPONSE_BYTES)
    this.#canForward = options.mayForward === true ? options.format?.canForward : undefined
    this.#receivedResponse = this.#canForward && options.format && new ReceivedResponse(options.format.createReader())
  }

  /** Returns the events for the caller. If a fault follows them, sets `failure` instead of throwing the error. */
  push(bytes: Uint8Array): TranslatedChunk {
    this.#receivedBytes += bytes.byteLength
    if (this.#receivedBytes > MAX_RESPONSE_BYTES) {
      throw withoutRetries(this.#options.toError('streamed a response larger than 32 MiB'))
    }
    this.#receivedResponse?.add(bytes)
    const canForward = this.#canForward
    const chunks: TranslatedChunk[] = []
    try {
      if (canForward === undefined || this.hasFinishReason) this.#parse(bytes, chunks)
      else this.#forwardEvents(bytes, canForward, chunks)
    } catch (error) {
      if (chunks.length === 0) throw error
      this.failure = error
    }
    return joinChunks(chunks)
  }

  pushChunk(chunk: StreamChunk): string {
    this.#collect(chunk)
    return this.write(this.writer.write(chunk))
  }

  finish(): string {
    const events = this.#parser?.end() ?? []
    if (this.#hasForwarded) this.#receivedResponse?.read(true)
    let text = ''
    for (const event of events) text += this.#translate(event)
    if (this.isComplete) return text
    if (this.#reader !== undefined && this.#reader.isComplete?.() !== true) {
      throw this.#options.toError('ended its stream before the response was complete')
    }
    return text + this.pushChunk({ parts: [{ type: 'done' }] })
  }

  get hasFinishReason(): boolean {
    return this.#collector.hasFinishReason()
  }

  /** True if events have been forwarded, or the response so far has text, unredacted thinking or a tool call. */
  get hasOutput(): boolean {
    if (this.#hasForwarded) return true
    const { parts, unmappedText = '' } = this.completion()
    return unmappedText !== '' || parts.some((part) => textOfPart(part) !== '')
  }

  get usage(): Usage | undefined {
    return this.#collector.completion().usage
  }

  completion(): Completion {
    const forwarded = this.#hasForwarded ? this.#receivedResponse?.read() : undefined
    return (forwarded ?? this.#collector).completion()
  }

  /** Returns the error of the first forwarded event that cannot be read. Parses all forwarded events. */
  forwardedFailure(): GatewayError | undefined {
    const failure = this.#hasForwarded ? this.#receivedResponse?.failure() : undefined
    return failure === undefined ? undefined : this.#unreadableError(failure)
  }

  write(events: readonly SseEvent[]): string {
    let text = ''
    for (const event of events) {
      text += this.#options.isNumbered ? writeSseEvent(event, String(++this.#eventCount)) : writeSseEvent(event)
    }
    return text
  }

  /** Splits the bytes into the end of an open event, complete events, and the beginning of the next event. */
  #forwardEvents(bytes: Uint8Array, canForward: CanForward, chunks: TranslatedChunk[]): void {
    const search = createByteSearch(bytes)
    let start = this.#hasOpenEvent ? findOpenEventEnd(search, this.#endsInLineFeed) : 0
    const end = findLastEventEnd(bytes, start)
    if (end <= start) return this.#parse(bytes, chunks)
    if (this.hasContent && end - start === bytes.length) return this.#forwardOrParse(search, canForward, chunks)
    if (start > 0) this.#parse(bytes.subarray(0, start), chunks)
    while (!this.hasContent && start < end) {
      const eventEnd = findEventEnd(search, start)
      this.#parse(bytes.subarray(start, eventEnd), chunks)
      start = eventEnd
    }
    this.#forwardOrParse(createByteSearch(bytes.subarray(start, end)), canForward, chunks)
    if (end < bytes.length) this.#parse(bytes.subarray(end), chunks)
  }

  /** If `canForward` rejects the events, halves them until it accepts a half or the half is short or one event. */
  #forwardOrParse(search: ByteSearch, canForward: CanForward, chunks: TranslatedChunk[]): void {
    const events = search.bytes
    if (events.length === 0) return
    if (this.hasFinishReason) return this.#parse(events, chunks)
    if (canForward(search)) {
      this.#hasForwarded = true
      this.writer.observeForwarded?.(search)
      chunks.push(this.#options.isNumbered ? this.#addEventIds(search) : events)
      return
    }
    if (events.length <= MAX_UNSPLIT_BYTES) return this.#parse(events, chunks)
    const middle = findEventEnd(search, (events.length >> 1) - 1)
    const split = middle < events.length ? middle : findEventEnd(search, 0)
    if (split === events.length) return this.#parse(events, chunks)
    this.#forwardOrParse(createByteSearch(events.subarray(0, split)), canForward, chunks)
    this.#forwardOrParse(createByteSearch(events.subarray(split)), canForward, chunks)
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
    if (this.isComplete || this.#reader === undefined) return ''
    const { toError } = this.#options
    if (isTooDeep(event.data)) throw withoutRetries(toError('sent an event that is nested too deeply'))
    let chunk: StreamChunk
    try {
      chunk = this.#reader(event)
    } catch (error) {
      if (this.hasContent) this.#collector.add(unreadChunk(event))
      throw this.#unreadableError(error)
    }
    return this.pushChunk(chunk)
  }

  #collect(chunk: StreamChunk): void {
    for (const part of chunk.parts) {
      if (part.type === 'response-start') this.responseId = part.id
      this.#hasResponse ||= part.type !== 'done' && part.type !== 'usage'
      this.hasContent ||= isContentOrEnd(part)
      this.isComplete ||= part.type === 'done'
    }
    this.hasContent ||= chunk.unmappedText !== undefined
    if (this.isComplete && !this.#hasResponse) throw this.#options.toError('ended its stream without a response')
    this.#collector.add(chunk)
  }

  #unreadableError(cause: unknown): GatewayError {
    return GatewayError.is(cause) ? cause : this.#options.toError('sent an event that cannot be parsed', cause)
  }

  #addEventIds(search: ByteSearch): TranslatedChunk {
    const pieces: TranslatedChunk[] = []
    for (let start = 0; start < search.bytes.length;) {
      const end = findEventEnd(search, start)
      pieces.push(`id: ${++this.#eventCount}\n`, search.bytes.subarray(start, end))
      start = end
    }
    return joinChunks(pieces)
  }
}

const LF = 10
/** Parsing events of this size takes less time than splitting them. */
const MAX_UNSPLIT_BYTES = 256
const encoder = new TextEncoder()

function joinChunks(chunks: readonly TranslatedChunk[]): TranslatedChunk {
  if (chunks.length === 1) return chunks[0] ?? ''
  const [first = '', ...others] = chunks.filter((chunk) => chunk.length > 0)
  if (others.length === 0) return first
  const pieces = chunks.map((chunk) => (typeof chunk === 'string' ? encoder.encode(chunk) : chunk))
  const size = pieces.reduce((sum, piece) => sum + piece.byteLength, 0)
  return joinBytes(pieces, size)
}

const INITIAL_BUFFER_BYTES = 16 * 1024
/** Parsing this number of bytes takes about 20 ms if the events are short. */
const MAX_UNREAD_BYTES = 256 * 1024

/**
 * A long response is parsed while it arrives, because parsing 32 MiB at once would block the event loop for seconds. One
 * buffer receives all bytes, because thousands of small retained chunks would slow down garbage collections.
 */
class ReceivedResponse {
  readonly #collector = new Collector()
  #parser: SseParser | undefined
  readonly #reader: StreamReader
  #failure: unknown
  #isComplete = false
  #buffer = allocateBytes(INITIAL_BUFFER_BYTES)
  #unreadBytes = 0

  constructor(reader: StreamReader) {
    this.#reader = reader
  }

  add(bytes: Uint8Array): void {
    if (this.#unreadBytes >= MAX_UNREAD_BYTES) this.read()
    const size = this.#unreadBytes + bytes.length
    if (size > this.#buffer.length) {
      const larger = allocateBytes(2 * size)
      larger.set(this.#buffer)
      this.#buffer = larger
    }
    this.#buffer.set(bytes, this.#unreadBytes)
    this.#unreadBytes = size
  }

  /** @param isEndOfStream If true, also parses a last event that no blank line follows. */
  read(isEndOfStream: boolean = false): Collector {
    // The translator limits the size of the response.
    const parser = (this.#parser ??= createSseParser(Infinity))
    const bytes = this.#buffer.subarray(0, this.#unreadBytes)
    this.#unreadBytes = 0
    try {
      for (const event of parser.read(bytes)) this.#add(event)
      if (isEndOfStream) for (const event of parser.end()) this.#add(event)
    } catch (error) {
      this.#failure ??= error
    }
    return this.#collector
  }

  /** Returns the error of the first event that cannot be read. */
  failure(): unknown {
    this.read()
    return this.#failure
  }

  #add(event: SseEvent): void {
    if (this.#isComplete) return
    let chunk: StreamChunk
    try {
      chunk = isTooDeep(event.data) ? unreadChunk(event) : this.#reader(event)
    } catch (error) {
      this.#failure ??= error
      chunk = unreadChunk(event)
    }
    this.#collector.add(chunk)
    this.#isComplete = chunk.parts.some(({ type }) => type === 'done')
  }
}

/** The text of a malformed event counts as output, because the vendor bills what it contains. */
function unreadChunk({ data }: SseEvent): StreamChunk {
  return parseObject(data) === undefined ? { parts: [], unmappedText: data } : { parts: [] }
}
