import { createParser } from 'eventsource-parser'
import type { Frame } from '../core/answer.ts'
import { GatewayError } from '../core/errors.ts'

/**
 * Maximum number of bytes to feed to the parser at once, because it checks the size of its buffer only after each feed.
 */
const SLICE_BYTES = 16 * 1024

/** Parses the bytes of an event stream, which can be split at any position. */
export interface FrameReader {
  /** Returns the events that end in these bytes. Throws `upstream` for an event that is too large. */
  read(bytes: Uint8Array): readonly Frame[]
  /** Returns the incomplete event at the end of the stream, if it has data. */
  end(): readonly Frame[]
}

/**
 * Creates a parser for one event stream: UTF-8 with or without a byte order mark, and lines that end in LF, CR or CRLF.
 * It skips comments and unknown fields, and accepts a last event without a blank line.
 *
 * @param maxEventChars Maximum size of an event, in characters.
 */
export function createFrameReader(maxEventChars: number): FrameReader {
  let frames: Frame[] = []
  let isTooLarge = false
  const decoder = new TextDecoder()
  const parser = createParser({
    maxBufferSize: maxEventChars,
    onEvent: ({ data, event, id }) => {
      frames.push({ ...(event !== undefined && { event }), data, ...(id !== undefined && { id }) })
    },
    onError: (error) => {
      if (error.type === 'max-buffer-size-exceeded') isTooLarge = true
    },
  })
  const feed = (text: string): void => {
    if (text !== '') parser.feed(text)
    if (isTooLarge)
      throw new GatewayError('upstream', `The upstream sent an event of more than ${maxEventChars} characters.`)
  }
  const take = (): readonly Frame[] => {
    const taken = frames
    frames = []
    return taken
  }
  return {
    read(bytes) {
      for (let start = 0; start < bytes.byteLength; start += SLICE_BYTES) {
        feed(decoder.decode(bytes.subarray(start, start + SLICE_BYTES), { stream: true }))
      }
      return take()
    },
    end() {
      feed(`${decoder.decode()}\n\n`)
      return take()
    },
  }
}

/**
 * Serializes an event. A line break in the data (LF, CR or CRLF) starts another data line. A parser joins the lines
 * with LF. Line breaks and NUL are removed from event names and ids.
 */
export function writeFrame(frame: Frame, eventId: string | undefined = frame.id): string {
  const event = frame.event === undefined || frame.event === '' ? '' : `event: ${oneLine(frame.event)}\n`
  const id = eventId === undefined ? '' : `id: ${oneLine(eventId)}\n`
  return `${event}${id}data: ${dataLines(frame.data)}\n\n`
}

/** A comment that shows that the connection is alive. Clients skip it. */
export function comment(text: string): string {
  return `: ${oneLine(text)}\n\n`
}

function dataLines(data: string): string {
  if (!data.includes('\n') && !data.includes('\r')) return data
  return data.split(/\r\n|\r|\n/).join('\ndata: ')
}

function oneLine(text: string): string {
  return /[\r\n\0]/.test(text) ? text.replaceAll(/[\r\n\0]/g, '') : text
}
