import { createParser } from 'eventsource-parser'
import type { SseEvent } from '../core/answer.ts'
import { GatewayError } from '../core/errors.ts'
import { createByteSearch } from '../core/json.ts'

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
    parser.feed(isFirst && text.startsWith(BYTE_ORDER_MARK) ? text.slice(1) : text)
    isFirst = false
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

export const EVENT_END = '\n\n'
const LF = 10

/** @param isAfterLineFeed True if the byte before these bytes is LF. */
export function findEventEnd(bytes: Uint8Array, isAfterLineFeed: boolean): number {
  if (isAfterLineFeed && bytes[0] === LF) return 1
  const end = createByteSearch(bytes).find(EVENT_END)
  return end === -1 ? -1 : end + EVENT_END.length
}

export function findLastEventEnd(bytes: Uint8Array, start: number): number {
  for (let end = bytes.length; end - 2 >= start; end--) {
    if (bytes[end - 1] === LF && bytes[end - 2] === LF) return end
  }
  return start
}
