import { afterAll, describe, expect, it, vi } from 'vitest'
import { Cancellation } from '../../src/core/async.ts'
import type * as Bytes from '../../src/core/byte-search.ts'
import type { ClientFormat, UpstreamFormat } from '../../src/formats/format.ts'
import { chatClient } from '../../src/formats/chat/client.ts'
import { chatUpstream } from '../../src/formats/chat/upstream.ts'
import { geminiUpstream } from '../../src/formats/gemini/upstream.ts'
import { messagesClient } from '../../src/formats/messages/client.ts'
import { messagesUpstream } from '../../src/formats/messages/upstream.ts'
import { responsesClient } from '../../src/formats/responses/client.ts'
import { responsesUpstream } from '../../src/formats/responses/upstream.ts'
import type * as Sse from '../../src/http/sse.ts'
import { createSseParser, type SseParser } from '../../src/http/sse.ts'
import { followStream } from '../../src/plugins/cache/follow.ts'
import { PacedStream } from '../../src/providers/paced-stream.ts'
import { countEvents, EventBuffer, type EventSink, skipEvents, textOf } from '../../src/streams/event-buffer.ts'
import type { LiveStream } from '../../src/streams/live-stream.ts'
import { ResponseTranslator } from '../../src/upstream/response-translator.ts'
import { upstreamError } from '../../src/upstream/attempts.ts'
import { UpstreamStream } from '../../src/upstream/upstream-stream.ts'
import { IS_FULL } from '../support/full.ts'
import { manualRuntime } from '../support/manual-runtime.ts'
import { noNetwork } from '../support/no-network.ts'
import { fc } from '../support/properties.ts'

/** The number of streams per reader. `npm run fuzz` runs 200,000, `.ci/run` 3,000. Both also print their figures. */
const RUNS = Number(process.env['FUZZ_RUNS'] ?? (IS_FULL ? 3000 : 100))
vi.setConfig({ testTimeout: 60_000 + 100 * RUNS })

/** Searches and parser calls are counted instead of measured. Their number and the bytes they read are bounded. */
const counter = vi.hoisted(() => {
  const state = { steps: 0, bytes: 0, maxSteps: Infinity }
  const step = (bytes: number): void => {
    state.steps += 1
    state.bytes += bytes
    if (state.steps > state.maxSteps) throw new Error(`the reader took more than ${state.maxSteps} steps`)
  }
  return { state, step }
})

vi.mock('../../src/core/byte-search.ts', async (load) => {
  const original = await load<typeof Bytes>()
  const createByteSearch = (bytes: Uint8Array): Bytes.ByteSearch => {
    const search = original.createByteSearch(bytes)
    let isConverted = false
    const find = (pattern: string, from?: number): number => {
      counter.step(isConverted ? 0 : bytes.length)
      isConverted = true
      return search.find(pattern, from)
    }
    return { bytes, find }
  }
  return { ...original, createByteSearch }
})

vi.mock('../../src/http/sse.ts', async (load) => {
  const original = await load<typeof Sse>()
  const createCountingParser = (maxEventChars: number): SseParser => {
    const parser = original.createSseParser(maxEventChars)
    const read = (bytes: Uint8Array): ReturnType<SseParser['read']> => {
      counter.step(bytes.length)
      return parser.read(bytes)
    }
    return { ...parser, read }
  }
  return { ...original, createSseParser: createCountingParser }
})

const MAX_STEPS_PER_PIECE = 24
const MAX_STEPS_PER_BYTE = 2
const MAX_READS_OF_A_BYTE = 24

interface Figures {
  streams: number
  bytes: number
  steps: number
  bytesRead: number
  mostReadsOfAByte: number
  ms: number
  /** Nanoseconds per byte of the slowest stream that is not short. */
  slowestNs: number
}

/** For shorter streams, creating the reader takes longer than reading. */
const MIN_TIMED_BYTES = 256
/** The first streams are read by code that is not yet compiled. */
const UNTIMED_STREAMS = 1000

const figures = new Map<string, Figures>()

function resetCounter(): void {
  counter.state.steps = 0
  counter.state.bytes = 0
}

/** Fails if the reader takes more steps, or reads the bytes more often, than a bound per byte and piece. */
function expectBounded(reader: string, pieces: readonly Uint8Array[], read: () => void): void {
  const ms = timeOf(() => countSteps(pieces, read))
  const found = record(reader, pieces, ms)
  if (!isSlowest(found, pieces, ms)) return
  // The system may have interrupted the first time.
  found.slowestNs = Math.max(found.slowestNs, nsPerByte(pieces, Math.min(ms, timeOf(read), timeOf(read))))
}

function timeOf(read: () => void): number {
  const begin = performance.now()
  read()
  return performance.now() - begin
}

function isSlowest({ streams, slowestNs }: Figures, pieces: readonly Uint8Array[], ms: number): boolean {
  return streams > UNTIMED_STREAMS && sizeOf(pieces) >= MIN_TIMED_BYTES && nsPerByte(pieces, ms) > slowestNs
}

function nsPerByte(pieces: readonly Uint8Array[], ms: number): number {
  return (ms * 1e6) / Math.max(1, sizeOf(pieces))
}

function countSteps(pieces: readonly Uint8Array[], read: () => void): void {
  const { state } = counter
  resetCounter()
  state.maxSteps = MAX_STEPS_PER_PIECE * (pieces.length + 1) + MAX_STEPS_PER_BYTE * sizeOf(pieces)
  try {
    read()
  } finally {
    expect(state.steps).toBeLessThanOrEqual(state.maxSteps)
    expect(state.bytes).toBeLessThanOrEqual(MAX_READS_OF_A_BYTE * (sizeOf(pieces) + pieces.length))
    state.maxSteps = Infinity
  }
}

const NO_FIGURES: Figures = { streams: 0, bytes: 0, steps: 0, bytesRead: 0, mostReadsOfAByte: 0, ms: 0, slowestNs: 0 }

function record(reader: string, pieces: readonly Uint8Array[], ms: number): Figures {
  const found = figures.get(reader) ?? { ...NO_FIGURES }
  const bytes = sizeOf(pieces)
  found.streams += 1
  found.bytes += bytes
  found.steps += counter.state.steps
  found.bytesRead += counter.state.bytes
  found.mostReadsOfAByte = Math.max(found.mostReadsOfAByte, counter.state.bytes / Math.max(1, bytes))
  found.ms += ms
  figures.set(reader, found)
  return found
}

afterAll(() => {
  if (process.env['FUZZ_RUNS'] === undefined && !IS_FULL) return
  for (const [reader, { streams, bytes, steps, bytesRead, mostReadsOfAByte, ms, slowestNs }] of figures) {
    const perByte = `${(steps / bytes).toFixed(3)} steps, ${(bytesRead / bytes).toFixed(2)} reads, ${((ms * 1e6) / bytes).toFixed(0)} ns`
    const most = `${mostReadsOfAByte.toFixed(1)} reads${slowestNs === 0 ? '' : `, ${slowestNs.toFixed(0)} ns`}`
    process.stdout.write(`${reader}: ${streams} streams, ${bytes} bytes; per byte ${perByte}; at most ${most}\n`)
  }
})

function sizeOf(pieces: readonly Uint8Array[]): number {
  return pieces.reduce((sum, { length }) => sum + length, 0)
}

interface Dialect {
  readonly upstream: UpstreamFormat
  readonly client: ClientFormat | undefined
  /** The lines of valid events. */
  readonly events: readonly string[]
}

const chunk = (delta: object, more: object = {}): string =>
  `data: ${JSON.stringify({ id: 'c', model: 'm', choices: [{ index: 0, delta, finish_reason: null, ...more }] })}`
const named = (value: { readonly type: string; readonly [name: string]: unknown }): string =>
  `event: ${value.type}\ndata: ${JSON.stringify(value)}`
const candidate = (value: object): string => `data: ${JSON.stringify({ candidates: [value] })}`

const DIALECTS: Readonly<Record<'chat' | 'messages' | 'responses' | 'gemini', Dialect>> = {
  chat: {
    upstream: chatUpstream,
    client: chatClient,
    events: [
      chunk({ role: 'assistant', content: '' }),
      chunk({ content: 'Grüße' }),
      chunk({ content: ' 世界\n\n' }),
      chunk({ reasoning_content: 'Hm.' }),
      chunk({ tool_calls: [{ index: 0, id: 'call_1', function: { name: 'look', arguments: '{}' } }] }),
      chunk({}, { finish_reason: 'stop' }),
      'data: {"id":"c","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}',
      'data: [DONE]',
    ],
  },
  messages: {
    upstream: messagesUpstream,
    client: messagesClient,
    events: [
      named({ type: 'message_start', message: { id: 'msg_1', model: 'm', content: [], usage: { input_tokens: 3 } } }),
      named({ type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } }),
      named({ type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'Grüße' } }),
      named({ type: 'content_block_delta', index: 0, delta: { type: 'odd_delta', odd: '1' } }),
      named({ type: 'ping' }),
      named({ type: 'content_block_stop', index: 0 }),
      named({ type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 2 } }),
      named({ type: 'message_stop' }),
    ],
  },
  responses: {
    upstream: responsesUpstream,
    client: responsesClient,
    events: [
      named({ type: 'response.created', response: { id: 'resp_1', model: 'm', output: [] } }),
      named({ type: 'response.output_item.added', output_index: 0, item: { type: 'message', id: 'i', content: [] } }),
      named({ type: 'response.content_part.added', output_index: 0, part: { type: 'output_text', text: '' } }),
      named({ type: 'response.output_text.delta', output_index: 0, content_index: 0, delta: 'Grüße' }),
      named({ type: 'response.reasoning_text.delta', output_index: 0, delta: 'Hm.' }),
      named({ type: 'response.completed', response: { id: 'resp_1', model: 'm', status: 'completed', output: [] } }),
    ],
  },
  gemini: {
    upstream: geminiUpstream,
    client: undefined,
    events: [
      candidate({ content: { parts: [{ text: 'Grüße' }] } }),
      candidate({ content: { parts: [{ text: 'Hm.', thought: true }] } }),
      candidate({ content: { parts: [{ functionCall: { name: 'look', args: {} } }] } }),
      candidate({ content: { parts: [{ text: '!' }] }, finishReason: 'STOP' }),
      'data: {"usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":2}}',
    ],
  },
}

const NAMES = ['chat', 'messages', 'responses', 'gemini'] as const
const CLIENTS = { chat: chatClient, messages: messagesClient, responses: responsesClient } as const

/** A malformed event that ends as a valid one does. */
function withUnclosedKey(event: string): string {
  return event.replace(/(.*)"(\w+)":/s, '$1"$2:')
}

const lineEnds = fc.array(
  fc.oneof({ weight: 6, arbitrary: fc.constant('\n') }, fc.constantFrom('\r\n', '\r', '\n\n\n')),
  { maxLength: 4 },
)

function streamText({ events }: Dialect): fc.Arbitrary<string> {
  const line = fc.oneof(
    { weight: 8, arbitrary: fc.constantFrom(...events) },
    { weight: 2, arbitrary: fc.constantFrom(...events).map(withUnclosedKey) },
    { weight: 1, arbitrary: fc.constantFrom(...events).map((event) => event.slice(0, -2)) },
    {
      weight: 3,
      arbitrary: fc.constantFrom(': keep-alive', ':', '', '', 'id: 1', 'retry: 3', 'data', 'data:', 'event: x'),
    },
    { weight: 1, arbitrary: fc.string({ unit: 'grapheme', maxLength: 12 }) },
  )
  const piece = fc.oneof(
    { weight: 4, arbitrary: line.map((text) => `${text}\n\n`) },
    { weight: 2, arbitrary: fc.tuple(line, lineEnds).map(([text, ends]) => text + ends.join('')) },
  )
  const inOrder = fc.tuple(fc.array(piece, { maxLength: 3 }), fc.nat(3)).map(([pieces, at]) => {
    return events.flatMap((event, index) => [...(index === at ? pieces : []), `${event}\n\n`]).join('')
  })
  return fc.oneof(
    { weight: 3, arbitrary: fc.array(piece, { maxLength: 10 }).map((pieces) => pieces.join('')) },
    { weight: 2, arbitrary: inOrder },
  )
}

const encoder = new TextEncoder()
const cuts = fc.array(fc.nat(), { maxLength: 6 })

/** Every second piece is a Buffer, which is searched by another function. */
function cut(text: string, at: readonly number[]): Uint8Array[] {
  const bytes = encoder.encode(text)
  const edges = [0, ...at.map((edge) => edge % (bytes.length + 1)).toSorted((one, other) => one - other), bytes.length]
  return edges.slice(1).map((edge, index) => {
    const piece = bytes.subarray(edges[index], edge)
    return index % 2 === 0 ? Buffer.from(piece) : piece
  })
}

const BODY = {
  model: 'm',
  max_tokens: 50,
  stream: true,
  messages: [{ role: 'user', content: 'Hello?' }],
  input: 'Hello?',
}

function translatorOf(upstream: UpstreamFormat, client: ClientFormat, mayForward: boolean, isNumbered: boolean) {
  return new ResponseTranslator({
    format: upstream,
    writer: client.createStreamWriter({ prompt: client.readPrompt(BODY), createdSeconds: 1 }),
    mayForward: mayForward && client.dialect === upstream.dialect,
    isNumbered,
    toError: (problem, cause) => upstreamError('tiny', problem, cause),
  })
}

interface Outcome {
  readonly isComplete: boolean
  readonly text: string
}

/** Reads a stream as a request does, to its end or to its first failure. */
function readToEnd(translator: ResponseTranslator, pieces: readonly Uint8Array[]): Outcome {
  let outcome: 'complete' | 'failed' | undefined
  const ignore = (): void => {}
  const source = { read: ignore, pause: ignore, resume: ignore, complete: ignore, abort: ignore }
  const stream = new UpstreamStream(source, translator)
  stream.observeEnd({
    onComplete: () => (outcome = 'complete'),
    onError: () => (outcome = 'failed'),
    onDisconnect: ignore,
  })
  for (const piece of pieces) stream.onBytes(piece)
  stream.onEnd()
  expect(outcome).toBeDefined()
  const { parts, unmappedText = '' } = translator.completion()
  const text = parts.map((part) => ('text' in part ? part.text : '')).join('') + unmappedText
  return { isComplete: outcome === 'complete', text }
}

describe.each(NAMES)('a %s stream of any events, comments, blank lines and cuts', (name) => {
  const dialect = DIALECTS[name]

  it('is read in a bounded number of steps per byte, and ends the same forwarded or parsed, cut or whole', () => {
    fc.assert(
      fc.property(
        streamText(dialect),
        cuts,
        fc.constantFrom('chat', 'messages', 'responses'),
        fc.boolean(),
        (text, at, client, isNumbered) => {
          const front = isNumbered ? (dialect.client ?? CLIENTS[client]) : CLIENTS[client]
          const pieces = cut(text, at)
          const outcomes: { forwarded?: Outcome; parsed?: Outcome } = {}
          expectBounded(`${name}, forwarded where possible`, pieces, () => {
            outcomes.forwarded = readToEnd(translatorOf(dialect.upstream, front, true, isNumbered), pieces)
          })
          const whole = [encoder.encode(text)]
          expectBounded(`${name}, parsed`, whole, () => {
            outcomes.parsed = readToEnd(translatorOf(dialect.upstream, front, false, isNumbered), whole)
          })
          const { forwarded, parsed } = outcomes
          expect(forwarded?.isComplete).toBe(parsed?.isComplete)
          if (parsed?.isComplete === true) expect(forwarded?.text).toBe(parsed.text)
        },
      ),
      { numRuns: RUNS },
    )
  })

  it.each(['\n\n\n', ': keep-alive\n\n\n', '\n\n\n\n\n', ': keep-alive\r\n\r\n\n\n\n'])(
    'is read completely if it begins with %j, in one piece and in any two',
    (start) => {
      const [first = '', ...others] = dialect.events
      const text = `${start}${first}\n\n\n${others.map((event) => `${event}\n\n`).join('')}`
      const client = dialect.client ?? chatClient
      for (let at = 0; at < start.length + first.length + 4; at++) {
        const pieces = cut(text, [at])
        countSteps(pieces, () => {
          const { isComplete, text: received } = readToEnd(translatorOf(dialect.upstream, client, true, false), pieces)
          expect(isComplete).toBe(true)
          expect(received).toContain('Grüße')
        })
      }
    },
  )
})

const anyStream = fc.oneof(...NAMES.map((name) => streamText(DIALECTS[name])))

it('the event stream parser reads any stream in one step per piece, and the same events from any cuts', () => {
  const read = (pieces: readonly Uint8Array[]) => {
    const parser = createSseParser(1_000_000)
    return [...pieces.flatMap((piece) => parser.read(piece)), ...parser.end()]
  }
  fc.assert(
    fc.property(anyStream, cuts, (text, at) => {
      const pieces = cut(text, at)
      expectBounded('event stream parser', pieces, () => {
        expect(read(pieces)).toEqual(read([encoder.encode(text.replaceAll(/\r\n?/g, '\n'))]))
      })
    }),
    { numRuns: RUNS },
  )
})

it('the pacing of a stream delivers every byte once, in at most one step per line and piece', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(anyStream, { maxLength: 4 }), cuts, async (texts, at) => {
      const text = texts.join('')
      const pieces = cut(text, at)
      const received: Uint8Array[] = []
      resetCounter()
      const begin = performance.now()
      await new Promise<void>((resolve) => {
        const stream = new PacedStream({ pauseReading: () => {}, resumeReading: () => {} })
        const ignore = (): void => {}
        stream.read({ onBytes: (bytes) => received.push(bytes), onChunk: ignore, onEnd: resolve, onError: ignore })
        for (const piece of pieces) stream.push(piece)
        stream.end((receiver) => receiver.onEnd())
      })
      record('paced stream', pieces, performance.now() - begin)
      expect(Buffer.concat(received).toString()).toBe(Buffer.concat(pieces).toString())
      expect(received.length).toBeLessThanOrEqual(pieces.length + text.length)
    }),
    { numRuns: RUNS },
  )
})

/** Writes the pieces as a shared stream does, which waits for the reader to drain. */
function liveStreamOf(pieces: readonly Uint8Array[], dialect: string): LiveStream {
  const follow = (sink: EventSink): (() => void) => {
    let next = 0
    const pump = (): void => {
      for (; next < pieces.length;) if (!sink.write(pieces[next++] ?? '')) return
      sink.end()
    }
    sink.onDrain(pump)
    pump()
    return () => {}
  }
  return { metadata: { dialect }, summary: () => ({}), follow }
}

describe.each([chatClient, messagesClient, responsesClient])('a shared $dialect stream', (format) => {
  const dialect = DIALECTS[format === chatClient ? 'chat' : format === messagesClient ? 'messages' : 'responses']

  it('is followed in a bounded number of steps, whatever it contains', async () => {
    const size = { prepareEstimate: () => undefined, estimate: 1, billedCacheWrites: () => undefined }
    const resolved = { name: 'm', routes: [] as never }
    await fc.assert(
      fc.asyncProperty(streamText(dialect), cuts, async (text, at) => {
        const pieces = cut(text, at)
        resetCounter()
        const begin = performance.now()
        const followed = await followStream(
          { format, id: 'req_1', cancellation: new Cancellation(), resolved, margin: 1, size },
          { countAsHit: () => {}, spent: 0 as never },
          { live: liveStreamOf(pieces, format.dialect) },
          { runtime: manualRuntime(noNetwork) },
        )
        if (followed !== undefined && 'read' in followed.replay.response) {
          const { response } = followed.replay
          await new Promise<void>((resolve) => {
            response.read({ onBytes: () => {}, onChunk: () => {}, onEnd: resolve, onError: () => resolve() })
          })
        }
        record(`shared ${format.dialect} stream`, pieces, performance.now() - begin)
        expect(counter.state.steps).toBeLessThanOrEqual(pieces.length + 1)
      }),
      { numRuns: RUNS },
    )
  })
})

it('a recording of any stream is followed from any event on', () => {
  fc.assert(
    fc.property(anyStream, cuts, fc.nat(12), (text, at, after) => {
      const pieces = cut(text, at).map(textOf)
      const whole = pieces.join('')
      resetCounter()
      const begin = performance.now()
      const rest = skipEvents(whole, after)
      const buffer = new EventBuffer({ reserve: () => true, release: () => {} })
      const received: string[] = []
      let ends = 0
      const ignore = (): void => {}
      const sink: EventSink = {
        write: (written) => received.push(textOf(written)) > 0,
        onDrain: ignore,
        end: () => (ends += 1),
        fail: ignore,
        detach: ignore,
      }
      buffer.follow(0, sink)
      for (const piece of pieces) buffer.push(piece)
      buffer.finish('', true)
      record('recording', [encoder.encode(text)], performance.now() - begin)
      expect(whole.endsWith(rest)).toBe(true)
      expect(countEvents(rest)).toBe(Math.max(0, countEvents(whole) - after))
      expect(received.join('')).toBe(whole)
      expect(ends).toBe(1)
    }),
    { numRuns: RUNS },
  )
})
