import { createParser } from 'eventsource-parser'
import type { Frame } from '../core/answer.ts'
import { GatewayError } from '../core/errors.ts'

/** The parser checks the size of its buffer after each feed, so a feed is bounded too. */
const SLICE_BYTES = 16 * 1024

/** Turns the bytes of an event stream into frames, however they were cut. */
export interface FrameReader {
  /** The frames that are complete with these bytes. Throws `upstream` for an event that is too large. */
  read(bytes: Uint8Array): readonly Frame[]
  /** The frame that was still open when the stream ended, if it said anything. */
  end(): readonly Frame[]
}

/**
 * A reader for one event stream: UTF-8 with or without a byte order mark, lines ending in LF, CR or CRLF, comments and
 * unknown fields skipped, a last event without its blank line accepted.
 *
 * @param maxEventChars Maximum size of an event, in characters.
 */
export function createFrameReader(maxEventChars: number): FrameReader {
  let frames: Frame[] = []
  let oversize = false
  const decoder = new TextDecoder()
  const parser = createParser({
    maxBufferSize: maxEventChars,
    onEvent: ({ data, event, id }) => {
      frames.push({ ...(event !== undefined && { event }), data, ...(id !== undefined && { id }) })
    },
    onError: (error) => {
      if (error.type === 'max-buffer-size-exceeded') oversize = true
    },
  })
  const feed = (text: string): void => {
    if (text !== '') parser.feed(text)
    if (oversize)
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
 * A frame as text on the wire. Line ends within the data, CR and CRLF too, become several data lines, which a reader
 * joins by LF; event names and ids cannot hold line ends or NUL and lose them.
 */
export function writeFrame(frame: Frame, eventId: string | undefined = frame.id): string {
  const event = frame.event === undefined || frame.event === '' ? '' : `event: ${oneLine(frame.event)}\n`
  const id = eventId === undefined ? '' : `id: ${oneLine(eventId)}\n`
  return `${event}${id}data: ${dataLines(frame.data)}\n\n`
}

/** A comment: bytes that say that the line is alive and that every client skips. */
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
