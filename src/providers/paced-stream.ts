import type { SourceReceiver } from '../core/completion.ts'
import { joinBytes } from '../core/http.ts'
import { yieldToEventLoop } from '../tokens/event-loop.ts'

const MAX_TURN_BYTES = 16 * 1024
const MAX_TURN_LINES = 200
const LF = 10
const SETTLED = Promise.resolve()

export interface Connection {
  pauseReading(): void
  resumeReading(): void
}

/** Yields to the event loop after 16 KiB or 200 lines, because an upstream may send many chunks at once. */
export class PacedStream {
  readonly #connection: Connection
  #receiver: SourceReceiver | undefined
  #chunks: Uint8Array[] = []
  #waitingBytes = 0
  #emitEnd: ((receiver: SourceReceiver) => void) | undefined
  #turnBytes = 0
  #turnLines = 0
  #isYielding = false
  #isScheduled = false

  constructor(connection: Connection) {
    this.#connection = connection
  }

  readonly #deliverScheduled = (): void => {
    this.#isScheduled = false
    this.#deliver()
  }

  get isYielding(): boolean {
    return this.#isYielding
  }

  read(receiver: SourceReceiver): void {
    this.#receiver = receiver
    this.#deliver()
  }

  push(bytes: Uint8Array): void {
    this.#chunks.push(bytes)
    this.#waitingBytes += bytes.byteLength
    if (this.#waitingBytes >= MAX_TURN_BYTES) return this.#deliver()
    if (this.#isScheduled) return
    // A single socket read often yields several small chunks, which are forwarded together.
    this.#isScheduled = true
    // A promise is cheaper than queueMicrotask, which creates an async resource for each call.
    void SETTLED.then(this.#deliverScheduled)
  }

  end(emitEnd: (receiver: SourceReceiver) => void): void {
    this.#emitEnd = emitEnd
    if (this.#receiver !== undefined && this.#chunks.length === 0) this.#forwardEnd(this.#receiver)
  }

  discard(): void {
    this.#chunks = []
    this.#waitingBytes = 0
    this.#emitEnd = undefined
  }

  #deliver(): void {
    const receiver = this.#receiver
    if (receiver === undefined) return
    while (this.#chunks.length > 0 && !this.#isYielding) receiver.onBytes(this.#takeSlice())
    if (this.#chunks.length === 0) this.#forwardEnd(receiver)
  }

  #forwardEnd(receiver: SourceReceiver): void {
    const emitEnd = this.#emitEnd
    this.#emitEnd = undefined
    emitEnd?.(receiver)
  }

  #takeSlice(): Uint8Array {
    const chunk = this.#takeChunk()
    const maxSize = Math.min(chunk.byteLength, MAX_TURN_BYTES - this.#turnBytes)
    let size = 0
    while (size < maxSize && this.#turnLines < MAX_TURN_LINES) {
      const lineFeed = chunk.indexOf(LF, size)
      size = lineFeed === -1 ? maxSize : Math.min(maxSize, lineFeed + 1)
      this.#turnLines++
    }
    this.#turnBytes += size
    if (this.#turnBytes >= MAX_TURN_BYTES || this.#turnLines >= MAX_TURN_LINES) this.#yield()
    this.#waitingBytes -= size
    if (size === chunk.byteLength) return chunk
    this.#chunks.unshift(chunk.subarray(size))
    return chunk.subarray(0, size)
  }

  #takeChunk(): Uint8Array {
    const [only] = this.#chunks
    if (only !== undefined && this.#chunks.length === 1) {
      this.#chunks.length = 0
      return only
    }
    let size = 0
    let count = 0
    for (const { byteLength } of this.#chunks) {
      if (count > 0 && size + byteLength > MAX_TURN_BYTES - this.#turnBytes) break
      size += byteLength
      count++
    }
    return joinBytes(this.#chunks.splice(0, count), size)
  }

  #yield(): void {
    this.#isYielding = true
    this.#connection.pauseReading()
    void this.#continueLater()
  }

  async #continueLater(): Promise<void> {
    await yieldToEventLoop()
    this.#isYielding = false
    this.#turnBytes = 0
    this.#turnLines = 0
    this.#deliver()
    if (!this.#isYielding) this.#connection.resumeReading()
  }
}
