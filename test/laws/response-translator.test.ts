import { describe, expect, it } from 'vitest'
import type { Completion, SseEvent } from '../../src/core/completion.ts'
import type { JsonObject } from '../../src/core/json.ts'
import { ResponseTranslator, type TranslatedChunk } from '../../src/upstream/response-translator.ts'
import { createSseParser } from '../../src/http/sse.ts'
import { upstreamError } from '../../src/upstream/attempts.ts'
import { cases, fc } from '../support/properties.ts'
import { buildEvents, type ModelResponse } from '../support/upstream-responses.ts'
import { formatEvent } from '../support/upstream.ts'
import { chatFormat, messagesFormat, type WholeFormat } from '../support/two-way-formats.ts'
import { IS_FULL } from '../support/full.ts'

const FORMATS = { chat: chatFormat, messages: messagesFormat } as const
type Dialect = keyof typeof FORMATS

const BODY: JsonObject = {
  model: 'large',
  max_tokens: 50,
  stream: true,
  messages: [{ role: 'user', content: 'Tell me.' }],
}

function translatorOf(format: WholeFormat, mayForward: boolean, isNumbered: boolean): ResponseTranslator {
  return new ResponseTranslator({
    format,
    writer: format.createStreamWriter({ prompt: format.readPrompt(BODY), createdSeconds: 1 }),
    mayForward,
    isNumbered,
    toError: (what, cause) => upstreamError('tiny', what, cause),
  })
}

/** Returns a format whose readers count the events that they parse. */
function countParsedEvents(format: WholeFormat): { readonly format: WholeFormat; readonly count: () => number } {
  let parsedEvents = 0
  const createReader: WholeFormat['createReader'] = () => {
    const read = format.createReader()
    return Object.assign((event: SseEvent) => {
      parsedEvents += 1
      return read(event)
    }, read)
  }
  return { format: { ...format, createReader }, count: () => parsedEvents }
}

const encoder = new TextEncoder()

/** Returns the bytes of a stream of this dialect. */
function bytesOf(dialect: Dialect, response: ModelResponse, comments: readonly number[] = []): Uint8Array {
  const frames = buildEvents({ dialect, body: BODY, index: 0, text: JSON.stringify(BODY) }, response).map(formatEvent)
  return encoder.encode(frames.map((text, at) => (comments.includes(at) ? `: ping\n\n${text}` : text)).join(''))
}

interface Translated {
  readonly events: readonly SseEvent[]
  readonly completion: Completion
  readonly isComplete: boolean
  readonly usage: unknown
  readonly responseId: string | undefined
}

function translate(translator: ResponseTranslator, pieces: readonly Uint8Array[]): Translated {
  const reader = createSseParser(32 * 1024 * 1024)
  const events: SseEvent[] = []
  const take = (chunk: TranslatedChunk): void => {
    events.push(...reader.read(typeof chunk === 'string' ? encoder.encode(chunk) : chunk))
  }
  // The search differs between Buffers, which Node's sockets emit, and plain byte arrays.
  for (const [at, piece] of pieces.entries()) take(translator.push(at % 2 === 0 ? Buffer.from(piece) : piece))
  if (!translator.isComplete) take(translator.finish())
  const { isComplete, usage, responseId } = translator
  return { events, completion: translator.completion(), isComplete, usage, responseId }
}

const decoder = new TextDecoder()

function textOfChunk(chunk: TranslatedChunk): string {
  return typeof chunk === 'string' ? chunk : decoder.decode(chunk)
}

function cut(bytes: Uint8Array, at: readonly number[]): Uint8Array[] {
  const edges = [0, ...at.map((edge) => edge % (bytes.length + 1)).toSorted((one, other) => one - other), bytes.length]
  return edges.slice(1).map((edge, index) => bytes.subarray(edges[index], edge))
}

function textOf(events: readonly SseEvent[]): string {
  return events.map(({ data }) => /" word \d+"/.exec(data)?.[0] ?? '').join('')
}

/**
 * Parses the data of events: relayed events keep the JSON text of the upstream, parsed ones may be serialized
 * differently.
 */
function valuesOf(events: readonly SseEvent[]): readonly unknown[] {
  return events.map(({ data, event, id }) => [event, id, data === '[DONE]' ? data : (JSON.parse(data) as unknown)])
}

const text = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 12 }),
  fc.constantFrom(
    'a\n\nb',
    'data: [DONE]',
    '"finish_reason":"stop"',
    '"usage"',
    'message_stop',
    '\r\n',
    '\u2028',
    '}\n',
  ),
)

const response: fc.Arbitrary<ModelResponse> = fc.record(
  {
    text: fc.array(text, { minLength: 1, maxLength: 8 }),
    toolCalls: fc.array(
      fc.record({ name: fc.constantFrom('look', 'find'), input: fc.constantFrom('{}', '{"at":"sky"}') }),
      { maxLength: 2 },
    ),
  },
  { requiredKeys: ['text'] },
)

/** In bytes, between the positions of a split. */
const STEP = IS_FULL ? 1 : 3

describe.each(['chat', 'messages'] as const)('a streamed answer of the %s format', (dialect) => {
  const format = FORMATS[dialect]
  const parsed = (bytes: Uint8Array, isNumbered: boolean): Translated =>
    translate(translatorOf(format, false, isNumbered), [bytes])

  it.each([true, false])('is the same when split at any position (relayed: %s)', (mayForward) => {
    const bytes = bytesOf(dialect, {
      text: ['One', ' Grüße\n\n', ' "two"'],
      toolCalls: [{ name: 'look', input: '{}' }],
    })
    const reference = parsed(bytes, true)
    expect(reference.isComplete).toBe(true)
    for (let at = 0; at <= bytes.length; at += STEP) {
      const found = translate(translatorOf(format, mayForward, true), cut(bytes, [at]))
      expect({ ...found, frames: valuesOf(found.events) }).toEqual({ ...reference, frames: valuesOf(reference.events) })
    }
  })

  it('has the same bytes when split at any position, if the upstream writes JSON without spaces', () => {
    const bytes = bytesOf(dialect, { text: ['One', ' two'], toolCalls: [{ name: 'look', input: '{"at":"sky"}' }] })
    const written = (pieces: readonly Uint8Array[]): string => {
      const translator = translatorOf(format, true, true)
      return pieces.map((piece) => textOfChunk(translator.push(piece))).join('')
    }
    const whole = written([bytes])
    for (let at = 0; at <= bytes.length; at += STEP) expect(written(cut(bytes, [at]))).toBe(whole)
  })

  it('is the same in pieces of one byte, relayed and parsed', () => {
    const bytes = bytesOf(dialect, { text: ['One', ' Grüße\n\n', ' "two"'] })
    const reference = parsed(bytes, false)
    for (const mayForward of [true, false]) {
      const found = translate(translatorOf(format, mayForward, false), cut(bytes, [...bytes.keys()]))
      expect({ ...found, frames: valuesOf(found.events) }).toEqual({ ...reference, frames: valuesOf(reference.events) })
    }
  })

  it('is the same in any pieces, relayed or parsed, with or without ids', () => {
    fc.assert(
      fc.property(
        response,
        fc.array(fc.nat(), { maxLength: 12 }),
        fc.array(fc.nat(12), { maxLength: 3 }),
        fc.boolean(),
        fc.boolean(),
        (given, cuts, comments, mayForward, isNumbered) => {
          const bytes = bytesOf(dialect, given, comments)
          const reference = parsed(bytes, isNumbered)
          const found = translate(translatorOf(format, mayForward, isNumbered), cut(bytes, cuts))
          expect({ ...found, frames: valuesOf(found.events) }).toEqual({
            ...reference,
            frames: valuesOf(reference.events),
          })
          if (isNumbered) expect(found.events.map(({ id }) => id)).toEqual(found.events.map((_, at) => String(at + 1)))
        },
      ),
      { numRuns: cases(400) },
    )
  })

  it('is forwarded unparsed if it contains only content', () => {
    const bytes = bytesOf(dialect, { text: ['One', ' two', ' three', ' four'] })
    const whole = new TextDecoder().decode(bytes)
    const from = whole.indexOf(' two')
    const start = whole.lastIndexOf('\n\n', from) + 2
    const end = whole.indexOf('\n\n', from) + 2
    // JSON text that the writers of the gateway never produce.
    const odd = whole.slice(start, end).replace('" two"', '"\\u0020two"')
    const translator = translatorOf(format, true, false)
    translator.push(encoder.encode(whole.slice(0, start)))
    const relayed = translator.push(encoder.encode(odd))

    expect(typeof relayed === 'string' ? relayed : new TextDecoder().decode(relayed)).toBe(odd)
    translator.push(encoder.encode(whole.slice(end)))
    expect(translator.completion()).toEqual(parsed(bytes, false).completion)
  })

  it('parses only the relevant events of a chunk with the whole stream', () => {
    const text = Array.from({ length: 100 }, (_, index) => ` word ${index}`)
    const bytes = bytesOf(dialect, { text })
    const counting = countParsedEvents(format)
    const translator = translatorOf(counting.format, true, false)
    const sent = createSseParser(Infinity).read(encoder.encode(textOfChunk(translator.push(bytes))))

    expect(textOf(sent)).toBe(textOf(parsed(bytes, false).events))
    expect(translator.isComplete).toBe(true)
    expect(counting.count()).toBeLessThanOrEqual(10)
  })

  it('parses a long answer while it arrives, so that its completion blocks the event loop briefly', () => {
    const words = Array.from({ length: 10_000 }, (_, index) => ` word ${index}`)
    const bytes = bytesOf(dialect, { text: words })
    const counting = countParsedEvents(format)
    const translator = translatorOf(counting.format, true, false)
    let mostAtOnce = 0
    for (let at = 0; at < bytes.length; at += 16_384) {
      const before = counting.count()
      translator.push(bytes.subarray(at, at + 16_384))
      mostAtOnce = Math.max(mostAtOnce, counting.count() - before)
    }
    const before = counting.count()
    const { parts } = translator.completion()

    expect(parts).toEqual([expect.objectContaining({ text: words.join('') })])
    expect(Math.max(mostAtOnce, counting.count() - before)).toBeLessThan(4_000)
    expect(translator.completion().parts).toEqual(parts)
  })

  it.each([true, false])('keeps the events before a faulty event of the same chunk (relayed: %s)', (mayForward) => {
    const whole = new TextDecoder().decode(bytesOf(dialect, { text: ['One', ' two', ' three'] }))
    const before = whole.slice(0, whole.indexOf('\n\n', whole.indexOf(' two')) + 2)
    const translator = translatorOf(format, mayForward, false)
    const chunk = translator.push(encoder.encode(`${before}data: {"choices":[\n\n${whole.slice(before.length)}`))

    const sent = typeof chunk === 'string' ? chunk : new TextDecoder().decode(chunk)
    expect(sent).toContain(' two')
    expect(sent).not.toContain(' three')
    expect(translator.failure).toMatchObject({ kind: 'upstream' })
    expect(() => translatorOf(format, mayForward, false).push(encoder.encode('data: {"choices":[\n\n'))).toThrow(
      expect.objectContaining({ kind: 'upstream' }),
    )
  })

  it.each([true, false])('keeps the events before too many unknown lines for the bill (relayed: %s)', (mayForward) => {
    const response = { text: ['One', ' two', ' three'] }
    const bytes = bytesOf(dialect, response)
    const end = Buffer.from(bytes).indexOf(' three') + ' three'.length
    const events = bytes.subarray(0, Buffer.from(bytes).indexOf('\n\n', end) + 2)
    const translator = translatorOf(format, mayForward, false)
    const read = (): unknown => [
      translator.push(Buffer.concat([events, encoder.encode('unknown: line\n'.repeat(1_001))])),
      translator.finish(),
    ]

    expect(read).toThrow('more than 1000 invalid lines')
    expect(translator.completion().parts).toMatchObject([{ type: 'text', text: 'One two three' }])
  })

  it.each([true, false])('above 32 MiB without content is not requested again (relayed: %s)', (mayForward) => {
    const translator = translatorOf(format, mayForward, false)
    const comments = encoder.encode(`: ${'x'.repeat(1_000_000)}\n\n`)
    const read = (): void => {
      for (let count = 0; count < 34; count += 1) translator.push(comments)
    }
    expect(read).toThrow(expect.objectContaining({ details: expect.objectContaining({ isFinal: true }) }))
  })

  it('that breaks off anywhere is partial and contains the received part', () => {
    const bytes = bytesOf(dialect, { text: ['One', ' two', ' three'] })
    const reference = parsed(bytes, false)
    const textOf = ({ parts }: Completion): string => parts.map((part) => ('text' in part ? part.text : '')).join('')
    for (let at = 0; at < bytes.length; at += 7) {
      for (const mayForward of [true, false]) {
        const translator = translatorOf(format, mayForward, false)
        translator.push(bytes.subarray(0, at))
        if (translator.isComplete || translator.hasFinishReason) continue
        expect(textOf(reference.completion).startsWith(textOf(translator.completion()))).toBe(true)
        expect(() => translator.finish()).toThrow(expect.objectContaining({ kind: 'upstream' }))
      }
    }
  })
})
