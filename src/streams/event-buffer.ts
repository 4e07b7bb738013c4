import { GatewayError } from '../core/errors.ts'

export interface CapacityShare {
  /** Reserves nothing and returns false if the bytes would exceed a limit, or after `release`. */
  reserve(bytes: number): boolean
  /** Only the first call has an effect. */
  release(): void
}

export type EventChunk = Uint8Array | string

export interface EventSink {
  /** Returns false if the reader's buffer is full. `onDrain` listeners run when the buffer has drained. */
  write(chunk: EventChunk): boolean
  onDrain(listener: () => void): void
  end(): void
  fail(error: unknown): void
  detach(): void
}

interface StreamEnd {
  readonly isComplete: boolean
  /** All events, or undefined if they were not stored. */
  readonly text: string | undefined
}

export type Recording = Pick<EventBuffer, 'follow' | 'count' | 'ended' | 'isStored'>

interface Reader {
  readonly sink: EventSink
  position: number
  eventsToSkip: number
  isBlocked: boolean
}

/** The producer pauses only while all readers are blocked, so the fastest reader determines its speed. */
export class EventBuffer {
  /** Never rejects. */
  readonly ended: Promise<StreamEnd>
  onDemandChange: ((hasDemand: boolean) => void) | undefined

  readonly #capacity: CapacityShare | undefined
  readonly #readers = new Set<Reader>()
  readonly #chunks: EventChunk[] = []
  /** Number of chunks before the first element of `#chunks`. */
  #droppedChunks = 0
  #original: Reader | undefined
  #isStored: boolean
  #hasEnded = false
  #isDraining = false
  #hasDemand = true
  #resolveEnd: (end: StreamEnd) => void = () => {}

  /** @param capacity If undefined, events are not stored, and only the original reader receives them. */
  constructor(capacity: CapacityShare | undefined) {
    this.#capacity = capacity
    this.#isStored = capacity !== undefined
    this.ended = new Promise((resolve) => (this.#resolveEnd = resolve))
  }

  /** Attaches the caller of the request, which receives all events even if they exceed the capacity. */
  attachOriginal(sink: EventSink): () => void {
    this.#original = { sink, position: 0, eventsToSkip: 0, isBlocked: false }
    return this.#attach(this.#original)
  }

  /** Skips the first `after` events. The sink fails with `too-large` if the events are not stored. */
  follow(after: number, sink: EventSink): () => void {
    return this.#attach({ sink, position: 0, eventsToSkip: after, isBlocked: false })
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
    if (this.#hasEnded || chunk.length === 0) return
    if (this.#isStored && this.#capacity?.reserve(sizeOf(chunk)) !== true) this.#stopStoring()
    const original = this.#original
    if (!this.#isStored && original === undefined) return
    if (!this.#isStored && original?.isBlocked === false && this.#readers.size === 1)
      return this.#forward(chunk, original)
    this.#chunks.push(chunk)
    for (const reader of this.#readers) this.#pump(reader)
    this.#dropReadChunks()
    this.#updateDemand()
  }

  /** A reader that is not blocked has read all earlier chunks, so the chunk is not stored. */
  #forward(chunk: EventChunk, reader: Reader): void {
    this.#droppedChunks += 1
    reader.position += 1
    if (reader.sink.write(chunk)) return
    reader.isBlocked = true
    this.#updateDemand()
  }

  finish(last: EventChunk, isComplete: boolean): void {
    if (this.#hasEnded) return
    this.push(last)
    this.#hasEnded = true
    this.#resolveEnd({ isComplete, text: this.#isStored ? this.#chunks.map(textOf).join('') : undefined })
    for (const reader of this.#readers) this.#pump(reader)
    this.#releaseCapacity()
  }

  /** True while new readers can read all events. */
  get isStored(): boolean {
    return this.#isStored
  }

  get hasDemand(): boolean {
    return this.#hasDemand
  }

  #attach(reader: Reader): () => void {
    this.#readers.add(reader)
    reader.sink.onDrain(() => {
      reader.isBlocked = false
      this.#pump(reader)
      this.#dropReadChunks()
      this.#updateDemand()
    })
    this.#pump(reader)
    this.#updateDemand()
    return () => {
      reader.sink.detach()
      this.#detach(reader)
    }
  }

  #detach(reader: Reader): void {
    this.#readers.delete(reader)
    if (reader === this.#original) {
      this.#original = undefined
      this.#dropReadChunks()
    }
    this.#releaseCapacity()
    this.#updateDemand()
  }

  #pump(reader: Reader): void {
    if (!this.#readers.has(reader)) return
    if (!this.#isStored && reader !== this.#original) {
      this.#detach(reader)
      reader.sink.fail(
        new GatewayError(
          'too-large',
          'The recording limits are exceeded, so this answer cannot be followed. Request a new answer.',
        ),
      )
      return
    }
    while (!reader.isBlocked && reader.position < this.#droppedChunks + this.#chunks.length) {
      const chunk = this.#chunks[reader.position - this.#droppedChunks] ?? ''
      reader.position += 1
      const unskipped = skipForReader(reader, chunk)
      if (unskipped.length > 0 && !reader.sink.write(unskipped)) reader.isBlocked = true
    }
    // A sink that drains during `write` calls this method again, and the nested call may have ended the reader.
    if (!this.#hasEnded || !this.#readers.has(reader)) return
    if (reader.position < this.#droppedChunks + this.#chunks.length) return
    this.#detach(reader)
    reader.sink.end()
  }

  /** Drops all events except unread events of the original reader. Fails all other readers. */
  #stopStoring(): void {
    this.#isStored = false
    for (const reader of this.#readers) this.#pump(reader)
    this.#dropReadChunks()
    this.#capacity?.release()
  }

  #dropReadChunks(): void {
    if (this.#isStored) return
    const readChunks = (this.#original?.position ?? Infinity) - this.#droppedChunks
    this.#droppedChunks += this.#chunks.splice(0, Math.min(readChunks, this.#chunks.length)).length
  }

  #releaseCapacity(): void {
    if (this.#hasEnded && this.#original === undefined) this.#capacity?.release()
  }

  #updateDemand(): void {
    let hasDemand = this.#isDraining
    for (const reader of this.#readers) hasDemand ||= !reader.isBlocked
    if (hasDemand === this.#hasDemand || this.#hasEnded) return
    this.#hasDemand = hasDemand
    this.onDemandChange?.(hasDemand)
  }
}

function skipForReader(reader: Reader, chunk: EventChunk): EventChunk {
  if (reader.eventsToSkip === 0) return chunk
  const text = textOf(chunk)
  const unskipped = skipEvents(text, reader.eventsToSkip)
  reader.eventsToSkip = Math.max(0, reader.eventsToSkip - countEvents(text))
  return unskipped
}

const decoder = new TextDecoder()

export function textOf(chunk: EventChunk): string {
  return typeof chunk === 'string' ? chunk : decoder.decode(chunk)
}

function sizeOf(chunk: EventChunk): number {
  return typeof chunk === 'string' ? 2 * chunk.length : chunk.byteLength
}

const EVENT_END = '\n\n'

export function countEvents(text: string): number {
  let count = 0
  for (let index = text.indexOf(EVENT_END); index !== -1; index = text.indexOf(EVENT_END, index + EVENT_END.length))
    count += 1
  return count
}

export function skipEvents(text: string, count: number): string {
  let index = 0
  for (let skipped = 0; skipped < count; skipped += 1) {
    const end = text.indexOf(EVENT_END, index)
    if (end === -1) return ''
    index = end + EVENT_END.length
  }
  return index === 0 ? text : text.slice(index)
}
