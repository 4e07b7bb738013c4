import type { Completion, Frame, StepReader, StreamFormat } from '../core/answer.ts'
import { collector } from '../core/steps.ts'
import { ByteLog } from '../http/body.ts'
import { createFrameReader, type FrameReader } from '../http/sse.ts'

/** Maximum size of bytes that are parsed at once. Short events of this size are parsed in about 20 ms. */
const MAX_UNREAD_BYTES = 256 * 1024

/**
 * Collects an answer from its bytes, because events that are relayed unparsed reach no other collector. The bytes of a
 * short answer are parsed when its completion is read. A long answer is parsed while it arrives, because parsing 32 MiB
 * at once blocks the event loop for seconds.
 */
export class ReceivedAnswer {
  readonly #format: StreamFormat
  readonly #maxBytes: number
  readonly #unread = new ByteLog()
  readonly #collected = collector()
  #frames: FrameReader | undefined
  #reader: StepReader | undefined
  /** True after a faulty event. The answer consists of the events before it. */
  #isFaulty = false

  constructor(format: StreamFormat, maxBytes: number) {
    this.#format = format
    this.#maxBytes = maxBytes
  }

  /** True if the unparsed bytes must be parsed before further bytes are added. */
  get isFull(): boolean {
    return this.#unread.size >= MAX_UNREAD_BYTES
  }

  add(bytes: Uint8Array): void {
    this.#unread.add(bytes)
  }

  /** Parses the bytes that are not parsed yet. */
  read(): void {
    const frames = (this.#frames ??= createFrameReader(this.#maxBytes))
    this.#collect(() => this.#unread.takeBlocks().flatMap((bytes) => frames.read(bytes)))
  }

  /** Parses an event at the end of the stream that no blank line follows. */
  end(): void {
    this.read()
    this.#collect(() => this.#frames?.end() ?? [])
  }

  completion(): Completion {
    this.read()
    return this.#collected.completion()
  }

  #collect(readFrames: () => readonly Frame[]): void {
    const reader = (this.#reader ??= this.#format.stepReader())
    try {
      for (const frame of readFrames()) if (!this.#isFaulty) this.#collected.add(reader(frame))
    } catch {
      this.#isFaulty = true
    }
  }
}
