import type { StreamReader } from '../core/answer.ts'
import { Collector } from '../core/stream-chunks.ts'
import { createSseParser, type SseParser } from '../http/sse.ts'

const INITIAL_BUFFER_BYTES = 16 * 1024
/** Number of unparsed bytes at which the next `add` parses them. Parsing short events of this size takes about 20 ms. */
const MAX_UNREAD_BYTES = 256 * 1024

/**
 * Collects an answer from its bytes, because events that are forwarded unparsed reach no other collector. A short answer
 * is parsed only when its completion is read. A long answer is parsed while it arrives, because parsing 32 MiB at once
 * would block the event loop for seconds.
 *
 * The bytes are copied into one buffer. Thousands of small retained chunks would survive minor garbage collections and
 * slow them down.
 */
export class ReceivedAnswer {
  readonly #collector = new Collector()
  #parser: SseParser | undefined
  #reader: StreamReader
  #buffer = new Uint8Array(INITIAL_BUFFER_BYTES)
  #unreadBytes = 0

  constructor(reader: StreamReader) {
    this.#reader = reader
  }

  add(bytes: Uint8Array): void {
    if (this.#unreadBytes >= MAX_UNREAD_BYTES) this.read()
    const size = this.#unreadBytes + bytes.length
    if (size > this.#buffer.length) {
      const larger = new Uint8Array(2 * size)
      larger.set(this.#buffer)
      this.#buffer = larger
    }
    this.#buffer.set(bytes, this.#unreadBytes)
    this.#unreadBytes = size
  }

  /** Parses all unparsed bytes. If `isEndOfStream` is true, also parses a last event that no blank line follows. */
  read(isEndOfStream: boolean = false): Collector {
    // The translator limits the size of the answer.
    const parser = (this.#parser ??= createSseParser(Infinity))
    const bytes = this.#buffer.subarray(0, this.#unreadBytes)
    this.#unreadBytes = 0
    try {
      for (const event of parser.read(bytes)) this.#collector.add(this.#reader(event))
      if (isEndOfStream) for (const event of parser.end()) this.#collector.add(this.#reader(event))
    } catch {
      // The answer consists of the events before the faulty event.
      this.#reader = () => ({ parts: [] })
    }
    return this.#collector
  }
}
