import { createParser } from 'eventsource-parser'
import type { SseEvent } from '../core/completion.ts'
import { GatewayError } from '../core/errors.ts'
import type { ByteSearch } from '../core/byte-search.ts'

/** The parser checks the size of its buffer only after each feed. */
const SLICE_BYTES = 16 * 1024
/** The parser creates an `Error` for each unknown field and each invalid `retry` value. */
const MAX_INVALID_LINES = 1_000

const FIRST_NON_ASCII = 0x80
const BYTE_ORDER_MARK = '\u{feff}'
/** Decoding in stream mode is slower, so it is used only for chunks that may begin or end within a character. */
const completeDecoder = new TextDecoder('utf-8', { ignoreBOM: true })

export interface SseParser {
  /** Throws `upstream` for an event or a stream that exceeds a limit, after all preceding events have been returned. */
  read(bytes: Uint8Array): readonly SseEvent[]
  end(): readonly SseEvent[]
}

export function createSseParser(maxEventChars: number): SseParser {
  let events: SseEvent[] = []
  let failure: GatewayError | undefined
  let invalidLines = 0
  let decoder: TextDecoder | undefined
  let hasOpenCharacter = false
  let isFirst = true
  let endsInCarriageReturn = false
  const parser = createParser({
    maxBufferSize: maxEventChars,
    onEvent: ({ data, event, id }) => {
      if (failure !== undefined) return
      events.push({ ...(event !== undefined && { event }), data, ...(id !== undefined && { id }) })
    },
    onError: ({ type }) => {
      const isTooLarge = type === 'max-buffer-size-exceeded'
      if (!isTooLarge && ++invalidLines <= MAX_INVALID_LINES) return
      const excess = isTooLarge
        ? `an event of more than ${maxEventChars} characters`
        : `more than ${MAX_INVALID_LINES} invalid lines`
      failure ??= new GatewayError('upstream', `The upstream sent ${excess}.`)
    },
  })
  const decode = (bytes: Uint8Array): string => {
    const hadOpenCharacter = hasOpenCharacter
    hasOpenCharacter = (bytes.at(-1) ?? 0) >= FIRST_NON_ASCII
    if (!hadOpenCharacter && !hasOpenCharacter) return completeDecoder.decode(bytes)
    decoder ??= new TextDecoder('utf-8', { ignoreBOM: true })
    return decoder.decode(bytes, { stream: true })
  }
  const feed = (text: string): void => {
    if (failure !== undefined || text === '') return
    const isAfterCarriageReturn = endsInCarriageReturn
    endsInCarriageReturn = text.endsWith('\r')
    const start = isFirst && text.startsWith(BYTE_ORDER_MARK) ? 1 : 0
    isFirst = false
    parser.feed(
      isAfterCarriageReturn || text.includes('\r')
        ? withLineFeeds(text.slice(start), isAfterCarriageReturn)
        : text.slice(start),
    )
  }
  const drain = (): readonly SseEvent[] => {
    if (failure !== undefined && events.length === 0) throw failure
    const drained = events
    events = []
    return drained
  }
  return {
    read(bytes) {
      for (let start = 0; start < bytes.byteLength; start += SLICE_BYTES) {
        feed(decode(bytes.subarray(start, start + SLICE_BYTES)))
      }
      return drain()
    },
    end() {
      feed(`${decoder?.decode() ?? ''}\n\n`)
      return drain()
    },
  }
}

/** Writes the id first, as in a forwarded event, which is sent unchanged after its id line. */
export function writeSseEvent(sseEvent: SseEvent, eventId: string | undefined = sseEvent.id): string {
  const { event = '', data } = sseEvent
  const eventLine = event === '' ? '' : `event: ${oneLine(event)}\n`
  const idLine = eventId === undefined ? '' : `id: ${oneLine(eventId)}\n`
  return `${idLine}${eventLine}data: ${dataLines(data)}\n\n`
}

/**
 * Replaces all line ends with line feeds. In a text with both kinds of line ends, the parser searches the rest of the
 * text for a carriage return at each line.
 */
function withLineFeeds(text: string, isAfterCarriageReturn: boolean): string {
  const start = isAfterCarriageReturn && text.startsWith('\n') ? 1 : 0
  return text.slice(start).replaceAll(/\r\n?/g, '\n')
}

export function writeSseComment(text: string): string {
  return `: ${oneLine(text)}\n\n`
}

function dataLines(data: string): string {
  if (!data.includes('\n') && !data.includes('\r')) return data
  return data.split(/\r\n|\r|\n/).join('\ndata: ')
}

function oneLine(text: string): string {
  return /[\r\n\0]/.test(text) ? text.replaceAll(/[\r\n\0]/g, '') : text
}

const EVENT_END = '\n\n'
const LF = 10

/** Returns the end of the event at `start`, with the blank lines after it, or the length if no event ends here. */
export function findEventEnd(search: ByteSearch, start: number): number {
  const end = search.find(EVENT_END, start)
  return end === -1 ? search.bytes.length : skipLineFeeds(search.bytes, end + EVENT_END.length)
}

/** Like `findEventEnd`, for an event that began in earlier bytes. */
export function findOpenEventEnd(search: ByteSearch, isAfterLineFeed: boolean): number {
  return isAfterLineFeed && search.bytes[0] === LF ? skipLineFeeds(search.bytes, 1) : findEventEnd(search, 0)
}

export function findLastEventEnd(bytes: Uint8Array, start: number): number {
  for (let end = bytes.length; end - 2 >= start; end--) {
    if (bytes[end - 1] === LF && bytes[end - 2] === LF) return end
  }
  return start
}

function skipLineFeeds(bytes: Uint8Array, start: number): number {
  let end = start
  while (bytes[end] === LF) end++
  return end
}
