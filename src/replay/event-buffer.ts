import { GatewayError } from '../core/errors.ts'

export interface CapacityShare {
  /** Reserves bytes. Reserves none and returns false if they would exceed a limit. */
  reserve(bytes: number): boolean
  /** Releases the capacity. Further calls have no effect. */
  release(): void
}

export type EventChunk = Uint8Array | string

export interface EventSink {
  /** Returns false if the reader's buffer is full. `onDrain` listeners run when it has drained. */
  write(chunk: EventChunk): boolean
  onDrain(listener: () => void): void
  end(): void
  fail(error: unknown): void
  leave(): void
}

interface StreamEnd {
  readonly isComplete: boolean
  /** All events, or undefined if they exceeded the capacity. */
  readonly text: string | undefined
}

export interface Recording {
  /**
   * Sends all events after the first `after` events to a sink. Returns a function that detaches the sink. If the events
   * exceed the capacity, the sink fails with `too-large`.
   */
  follow(after: number, sink: EventSink): () => void
  /** Returns the number of events so far, or 0 if they are not stored. */
  count(): number
  /** Resolves when the stream has ended. Never rejects. */
  readonly ended: Promise<StreamEnd>
}

interface Reader {
  readonly sink: EventSink
  position: number
  toSkip: number
  isBlocked: boolean
}

/**
 * An event stream with several readers. Each starts at any event and reads at its own speed. The producer is paused
 * only while all readers are blocked, so the fastest reader determines its speed.
 */
export class EventBuffer implements Recording {
  readonly ended: Promise<StreamEnd>
  /** Called with false when all readers are blocked, and with true when a reader accepts events again. */
  onDemand: ((hasDemand: boolean) => void) | undefined

  readonly #capacity: CapacityShare | undefined
  readonly #readers = new Set<Reader>()
  readonly #chunks: EventChunk[] = []
  #first = 0
  #original: Reader | undefined
  #isStored: boolean
  #isOver = false
  #isDraining = false
  #hasDemand = true
  #resolveEnd: (ending: StreamEnd) => void = () => {}

  /** @param capacity If undefined, events are not stored, and only the original reader receives them. */
  constructor(capacity: CapacityShare | undefined) {
    this.#capacity = capacity
    this.#isStored = capacity !== undefined
    this.ended = new Promise((resolve) => {
      this.#resolveEnd = resolve
    })
  }

  /** Attaches the caller of the request, which receives all events even if they exceed the capacity. */
  attachOriginal(sink: EventSink): () => void {
    this.#original = { sink, position: 0, toSkip: 0, isBlocked: false }
    return this.#attach(this.#original)
  }

  follow(after: number, sink: EventSink): () => void {
    return this.#attach({ sink, position: 0, toSkip: after, isBlocked: false })
  }

  count(): number {
    return this.#isStored ? this.#chunks.reduce((sum, chunk) => sum + countEvents(textOf(chunk)), 0) : 0
  }

  /** Lets the producer finish without pauses, even without readers. */
  drain(): void {
    this.#isDraining = true
    this.#updateDemand()
  }

  push(chunk: EventChunk): void {
    if (this.#isOver || chunk.length === 0) return
    if (this.#isStored && this.#capacity?.reserve(sizeOf(chunk)) !== true) this.#stopStoring()
    const original = this.#original
    if (!this.#isStored && original === undefined) return
    if (!this.#isStored && original?.isBlocked === false && this.#readers.size === 1)
      return this.#forward(chunk, original)
    this.#chunks.push(chunk)
    for (const reader of this.#readers) this.#pump(reader)
    if (!this.#isStored) this.#dropRead()
    this.#updateDemand()
  }

  /** Writes to the only reader without storing the chunk. A reader that is not blocked has read all earlier chunks. */
  #forward(chunk: EventChunk, reader: Reader): void {
    this.#first += 1
    reader.position += 1
    if (reader.sink.write(chunk)) return
    reader.isBlocked = true
    this.#updateDemand()
  }

  /** Adds the last events and ends all readers. Further calls have no effect. */
  finish(last: EventChunk, isComplete: boolean): void {
    if (this.#isOver) return
    this.push(last)
    this.#isOver = true
    this.#resolveEnd({ isComplete, text: this.#isStored ? this.#chunks.map(textOf).join('') : undefined })
    for (const reader of this.#readers) this.#pump(reader)
    this.#releaseCapacity()
  }

  /** True while new readers can read all events. */
  get isStored(): boolean {
    return this.#isStored
  }

  #attach(reader: Reader): () => void {
    this.#readers.add(reader)
    reader.sink.onDrain(() => {
      reader.isBlocked = false
      this.#pump(reader)
      if (!this.#isStored) this.#dropRead()
      this.#updateDemand()
    })
    this.#pump(reader)
    this.#updateDemand()
    return () => {
      reader.sink.leave()
      this.#detach(reader)
    }
  }

  #detach(reader: Reader): void {
    this.#readers.delete(reader)
    if (reader === this.#original) {
      this.#original = undefined
      if (!this.#isStored) this.#dropRead()
    }
    this.#releaseCapacity()
    this.#updateDemand()
  }

  #pump(reader: Reader): void {
    if (!this.#readers.has(reader)) return
    if (!this.#isStored && reader !== this.#original) {
      this.#detach(reader)
      reader.sink.fail(tooLarge())
      return
    }
    while (!reader.isBlocked && reader.position < this.#first + this.#chunks.length) {
      const chunk = this.#chunks[reader.position - this.#first] ?? ''
      reader.position += 1
      const rest = afterSkipped(reader, chunk)
      if (rest.length > 0 && !reader.sink.write(rest)) reader.isBlocked = true
    }
    // A sink that drains during `write` calls this method again, and the nested call may have ended the reader.
    if (!this.#isOver || !this.#readers.has(reader)) return
    if (reader.position < this.#first + this.#chunks.length) return
    this.#detach(reader)
    reader.sink.end()
  }

  /** Drops all events except unread events of the original reader. Fails all other readers. */
  #stopStoring(): void {
    this.#isStored = false
    for (const reader of this.#readers) this.#pump(reader)
    this.#dropRead()
    this.#capacity?.release()
  }

  #dropRead(): void {
    const read = (this.#original?.position ?? Infinity) - this.#first
    const dropped = this.#chunks.splice(0, Math.min(read, this.#chunks.length))
    this.#first += dropped.length
  }

  /** Releases the capacity once the stream has ended and the original reader has finished or disconnected. */
  #releaseCapacity(): void {
    if (this.#isOver && this.#original === undefined) this.#capacity?.release()
  }

  #updateDemand(): void {
    let hasDemand = this.#isDraining
    for (const reader of this.#readers) hasDemand ||= !reader.isBlocked
    if (hasDemand === this.#hasDemand || this.#isOver) return
    this.#hasDemand = hasDemand
    this.onDemand?.(hasDemand)
  }
}

function afterSkipped(reader: Reader, chunk: EventChunk): EventChunk {
  if (reader.toSkip === 0) return chunk
  const text = textOf(chunk)
  const rest = skipEvents(text, reader.toSkip)
  reader.toSkip = Math.max(0, reader.toSkip - countEvents(text))
  return rest
}

const decoder = new TextDecoder()

export function textOf(chunk: EventChunk): string {
  return typeof chunk === 'string' ? chunk : decoder.decode(chunk)
}

function sizeOf(chunk: EventChunk): number {
  return typeof chunk === 'string' ? 2 * chunk.length : chunk.byteLength
}

function tooLarge(): GatewayError {
  const message = 'This answer exceeds the recording capacity, so it cannot be followed. Send the request again.'
  return new GatewayError('too-large', message)
}

const END = '\n\n'

export function countEvents(text: string): number {
  let count = 0
  for (let at = text.indexOf(END); at !== -1; at = text.indexOf(END, at + END.length)) count += 1
  return count
}

/** Returns the string after its first `count` events. */
export function skipEvents(text: string, count: number): string {
  let at = 0
  for (let skipped = 0; skipped < count; skipped += 1) {
    const end = text.indexOf(END, at)
    if (end === -1) return ''
    at = end + END.length
  }
  return at === 0 ? text : text.slice(at)
}
