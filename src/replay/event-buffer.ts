import { GatewayError } from '../core/errors.ts'
import type { CapacityShare } from './capacity.ts'

/** One or several whole server-sent events. */
export type EventChunk = Uint8Array | string

/** Where one reader gets its events. */
export interface EventSink {
  /** Returns false when the reader is too slow; the listener of `onDrain` is called when it has caught up. */
  write(chunk: EventChunk): boolean
  onDrain(listener: () => void): void
  end(): void
  /** The stream cannot be read on. */
  fail(error: unknown): void
  /** The reader has left. */
  leave(): void
}

interface StreamEnd {
  readonly isWhole: boolean
  /** All events; undefined when they were too many to keep. */
  readonly text: string | undefined
}

/** The part of an event buffer that others than its producer see. */
export interface Recording {
  /**
   * Sends everything after the first `after` events: at once what is there, then what comes. Returns a function by which
   * the reader leaves. Fails with `too-large` when the events have grown too large to be kept.
   */
  follow(after: number, sink: EventSink): () => void
  /** The number of events so far; 0 when they are not kept. */
  count(): number
  /** Resolves when the stream has ended. Never rejects. */
  readonly ended: Promise<StreamEnd>
}

interface Reader {
  readonly sink: EventSink
  /** The number of chunks read since the beginning of the stream. */
  position: number
  toSkip: number
  isBlocked: boolean
}

/**
 * One event stream that many may read, each at its own pace and from any event on. The producer is asked to pause when
 * every reader is slow, so the fastest reader sets the pace.
 */
export class EventBuffer implements Recording {
  readonly ended: Promise<StreamEnd>
  /** Called with false when no reader takes more for now, and with true when one does again. */
  onDemand: ((isWanted: boolean) => void) | undefined

  readonly #place: CapacityShare | undefined
  readonly #readers = new Set<Reader>()
  readonly #chunks: EventChunk[] = []
  /** The number of chunks that have been let go. */
  #first = 0
  #original: Reader | undefined
  #isKept: boolean
  #isOver = false
  #isWhole = false
  #isDraining = false
  #isWanted = true
  #tellEnd: (ending: StreamEnd) => void = () => {}

  /** Without capacity no event is kept, and only the original reader gets the events. */
  constructor(place: CapacityShare | undefined) {
    this.#place = place
    this.#isKept = place !== undefined
    this.ended = new Promise((resolve) => {
      this.#tellEnd = resolve
    })
  }

  /**
   * Attaches the caller of the request. It receives every event, even when the events are too large to be kept for
   * others.
   */
  attachOriginal(sink: EventSink): () => void {
    this.#original = { sink, position: 0, toSkip: 0, isBlocked: false }
    return this.#attach(this.#original)
  }

  follow(after: number, sink: EventSink): () => void {
    return this.#attach({ sink, position: 0, toSkip: after, isBlocked: false })
  }

  count(): number {
    return this.#isKept ? this.#chunks.reduce((sum, chunk) => sum + countEvents(textOf(chunk)), 0) : 0
  }

  /** No reader is needed: the producer is never paused again. */
  drain(): void {
    this.#isDraining = true
    this.#updateDemand()
  }

  push(chunk: EventChunk): void {
    if (this.#isOver || chunk.length === 0) return
    if (this.#isKept && this.#place?.take(sizeOf(chunk)) !== true) this.#letGo()
    if (!this.#isKept && this.#original === undefined) return
    this.#chunks.push(chunk)
    for (const reader of this.#readers) this.#pump(reader)
    if (!this.#isKept) this.#dropRead()
    this.#updateDemand()
  }

  /** Adds the last events and ends every reader. Further calls have no effect. */
  finish(last: EventChunk, isWhole: boolean): void {
    if (this.#isOver) return
    this.push(last)
    this.#isOver = true
    this.#isWhole = isWhole
    this.#tellEnd({ isWhole, text: this.#isKept ? this.#chunks.map(textOf).join('') : undefined })
    for (const reader of this.#readers) this.#pump(reader)
    this.#leavePlace()
  }

  get isWhole(): boolean {
    return this.#isWhole
  }

  #attach(reader: Reader): () => void {
    this.#readers.add(reader)
    reader.sink.onDrain(() => {
      reader.isBlocked = false
      this.#pump(reader)
      if (!this.#isKept) this.#dropRead()
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
      if (!this.#isKept) this.#dropRead()
    }
    this.#leavePlace()
    this.#updateDemand()
  }

  /** Writes pending events until the reader blocks. */
  #pump(reader: Reader): void {
    if (!this.#readers.has(reader)) return
    if (!this.#isKept && reader !== this.#original) {
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
    // A sink may drain while it is written to: then the end has been reached within.
    if (!this.#isOver || !this.#readers.has(reader)) return
    if (reader.position < this.#first + this.#chunks.length) return
    this.#detach(reader)
    reader.sink.end()
  }

  /** Stops keeping events. From now on only events that the original reader has not read are held. */
  #letGo(): void {
    this.#isKept = false
    this.#dropRead()
    this.#place?.leave()
  }

  #dropRead(): void {
    const read = (this.#original?.position ?? Infinity) - this.#first
    const dropped = this.#chunks.splice(0, Math.min(read, this.#chunks.length))
    this.#first += dropped.length
  }

  /** The recording uses capacity until the original reader has read it or has left. */
  #leavePlace(): void {
    if (this.#isOver && this.#original === undefined) this.#place?.leave()
  }

  #updateDemand(): void {
    let isWanted = this.#isDraining
    for (const reader of this.#readers) isWanted ||= !reader.isBlocked
    if (isWanted === this.#isWanted || this.#isOver) return
    this.#isWanted = isWanted
    this.onDemand?.(isWanted)
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

function textOf(chunk: EventChunk): string {
  return typeof chunk === 'string' ? chunk : decoder.decode(chunk)
}

/** Bytes in memory: two for each UTF-16 unit of a text. */
function sizeOf(chunk: EventChunk): number {
  return typeof chunk === 'string' ? 2 * chunk.length : chunk.byteLength
}

function tooLarge(): GatewayError {
  const message =
    'This answer cannot be followed: it, or all recordings together, grew too large to keep. Send the request again.'
  return new GatewayError('too-large', message)
}

/** Server-sent events end with an empty line, and `writeFrame` puts none inside one. */
const END = '\n\n'

/** How many events a text of whole events holds. Linear. */
export function countEvents(text: string): number {
  let count = 0
  for (let at = text.indexOf(END); at !== -1; at = text.indexOf(END, at + END.length)) count += 1
  return count
}

/** The text after its first `count` events; empty when it has no more than that. */
export function skipEvents(text: string, count: number): string {
  let at = 0
  for (let skipped = 0; skipped < count; skipped += 1) {
    const end = text.indexOf(END, at)
    if (end === -1) return ''
    at = end + END.length
  }
  return at === 0 ? text : text.slice(at)
}
