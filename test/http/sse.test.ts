import { describe, expect, it } from 'vitest'
import type { SseEvent } from '../../src/core/completion.ts'
import { GatewayError } from '../../src/core/errors.ts'
import { createSseParser, writeSseComment, writeSseEvent } from '../../src/http/sse.ts'
import { fc } from '../support/properties.ts'
import { readSseEvents } from '../support/read-events.ts'

const encoder = new TextEncoder()

async function framesOf(...pieces: readonly (string | Uint8Array)[]): Promise<readonly SseEvent[]> {
  async function* body(): AsyncGenerator<Uint8Array> {
    for (const piece of pieces) yield typeof piece === 'string' ? encoder.encode(piece) : piece
  }
  const events: SseEvent[] = []
  for await (const event of readSseEvents(body())) events.push(event)
  return events
}

const chatStream = [
  '\u{feff}: welcome\r\n\r\n',
  'data: {"id":"c","choices":[{"delta":{"content":"Grüße, 世界 👩‍👩‍👧‍👦"}}]}\r\n\r\n',
  ': ping\n\n',
  'data:{"choices":[{"delta":{"content":"a\\u2028b"}}]}\n\n',
  'retry: 3000\nunknown: field\n\n',
  'id: 7\ndata: two\ndata: lines\n\n',
  'data: [DONE]\n\n',
].join('')

const messageStream = [
  'event: message_start\ndata: {"type":"message_start","message":{"id":"msg_é"}}\n\n',
  'event: ping\ndata: {"type":"ping"}\n\n',
  'event:content_block_delta\ndata:{"delta":{"text":"\u{1d11e} clef 漢字"}}\r\r',
  'event: message_stop\r\ndata: {"type":"message_stop"}\r\n',
].join('')

describe('reading event streams', () => {
  it('reads the chat format with comments, CRLF, a byte order mark and unknown fields', async () => {
    expect(await framesOf(chatStream)).toEqual([
      { data: '{"id":"c","choices":[{"delta":{"content":"Grüße, 世界 👩‍👩‍👧‍👦"}}]}' },
      { data: '{"choices":[{"delta":{"content":"a\\u2028b"}}]}' },
      { data: 'two\nlines', id: '7' },
      { data: '[DONE]' },
    ])
  })

  it('removes a byte order mark only at the start, split at any byte', async () => {
    const bytes = encoder.encode('\u{feff}data: é\n\ndata: \u{feff}x\u{feff}ü\n\n')
    for (let first = 0; first <= bytes.length; first += 1) {
      for (let second = first; second <= bytes.length; second += 1) {
        const pieces = [bytes.subarray(0, first), bytes.subarray(first, second), bytes.subarray(second)]
        expect(await framesOf(...pieces)).toEqual([{ data: 'é' }, { data: '\u{feff}x\u{feff}ü' }])
      }
    }
  })

  it('reads the message format, CR alone and a last event without its blank line', async () => {
    expect(await framesOf(messageStream)).toEqual([
      { event: 'message_start', data: '{"type":"message_start","message":{"id":"msg_é"}}' },
      { event: 'ping', data: '{"type":"ping"}' },
      { event: 'content_block_delta', data: '{"delta":{"text":"\u{1d11e} clef 漢字"}}' },
      { event: 'message_stop', data: '{"type":"message_stop"}' },
    ])
  })

  it('skips up to 1,000 invalid lines, and rejects a stream with more', async () => {
    const line = 'unknown: field\n'

    expect(await framesOf(`${line.repeat(1000)}data: after\n\n`)).toEqual([{ data: 'after' }])
    await expect(framesOf(`data: before\n\n${line.repeat(1001)}data: after\n\n`)).rejects.toMatchObject({
      kind: 'upstream',
      message: 'The upstream sent more than 1000 invalid lines.',
    })
  })

  it('returns the events before a line that exceeds the limit, and then rejects the stream', () => {
    const parser = createSseParser(1000)

    expect(parser.read(encoder.encode(`data: before\n\n${'x\n'.repeat(1001)}data: after\n\n`))).toEqual([
      { data: 'before' },
    ])
    expect(() => parser.end()).toThrow('more than 1000 invalid lines')
  })

  it.each([
    ['chat', chatStream],
    ['message', messageStream],
  ])('a recorded %s stream gives the same frames when it is cut at any byte', async (_name, text) => {
    const bytes = encoder.encode(text)
    const whole = await framesOf(bytes)
    for (let cut = 0; cut <= bytes.length; cut += 1) {
      expect(await framesOf(bytes.subarray(0, cut), bytes.subarray(cut))).toEqual(whole)
    }
    expect(await framesOf(...Array.from(bytes, (_, at) => bytes.subarray(at, at + 1)))).toEqual(whole)
  })

  it('random splits do not change the events', async () => {
    const bytes = encoder.encode(chatStream + messageStream)
    const whole = await framesOf(bytes)
    const cuts = fc.array(fc.nat(bytes.length), { maxLength: 40 })
    await fc.assert(
      fc.asyncProperty(cuts, async (places) => {
        const borders = [0, ...places.toSorted((a, b) => a - b), bytes.length]
        const pieces = borders.slice(1).map((end, index) => bytes.subarray(borders[index], end))
        expect(await framesOf(...pieces)).toEqual(whole)
      }),
    )
  })

  it('an event of nearly the maximum size is read, also when it comes in one piece', async () => {
    const data = 'x'.repeat(1024 * 1024 - 100)
    expect(await framesOf(`data: ${data}\n\ndata: after\n\n`)).toEqual([{ data }, { data: 'after' }])
  })

  it.each([
    ['an endless line', (): string => 'x'.repeat(70_000)],
    ['an endless event of many lines', (): string => 'data: x\n'.repeat(9000)],
  ])('%s above the maximum size is rejected as a fault of the upstream', async (_name, piece) => {
    let sent = 0
    async function* endless(): AsyncGenerator<Uint8Array> {
      yield encoder.encode('data: ')
      for (;;) {
        sent += piece().length
        yield encoder.encode(piece())
      }
    }
    const reading = (async (): Promise<void> => {
      for await (const event of readSseEvents(endless())) expect(event).toBeUndefined()
    })()
    await expect(reading).rejects.toSatisfy((error) => GatewayError.is(error) && error.kind === 'upstream')
    expect(sent).toBeLessThan(9 * 1024 * 1024)
  })

  it('invalid UTF-8 becomes replacement characters', async () => {
    expect(await framesOf('data: a', new Uint8Array([0xff, 0xe4]), 'b\n\n')).toEqual([{ data: 'a\ufffd\ufffdb' }])
  })
})

const line = fc.string({ unit: 'grapheme' }).filter((text) => !/[\r\n\0]/.test(text))
const anyFrame: fc.Arbitrary<SseEvent> = fc
  .record({
    event: fc.option(
      line.filter((text) => text !== ''),
      { nil: undefined },
    ),
    data: fc.array(line, { minLength: 1, maxLength: 4 }).map((lines) => lines.join('\n')),
    id: fc.option(line, { nil: undefined }),
  })
  .map(({ event, data, id }) => ({ ...(event !== undefined && { event }), data, ...(id !== undefined && { id }) }))

describe('writing event streams', () => {
  it('written events are read unchanged', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(anyFrame, { maxLength: 8 }), async (events) => {
        expect(await framesOf(events.map((event) => writeSseEvent(event)).join(writeSseComment('alive')))).toEqual(
          events,
        )
      }),
    )
  })

  it('line ends in data, name or id do not start another event or field', async () => {
    const injected = { event: 'a\ndata: x', data: '1\r2\r\n\n3\ndata: [DONE]', id: 'i\r\n\r\ndata: y' }
    expect(await framesOf(writeSseEvent(injected))).toEqual([
      { event: 'adata: x', data: '1\n2\n\n3\ndata: [DONE]', id: 'idata: y' },
    ])
    expect(await framesOf(writeSseComment('a\n\ndata: x'))).toEqual([])
  })
})
