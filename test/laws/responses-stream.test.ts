import { Stream } from 'openai/core/streaming'
import { ResponseStream } from 'openai/lib/responses/ResponseStream'
import { describe, expect, it } from 'vitest'
import {
  type StreamPart,
  type Completion,
  type SseEvent,
  Collector,
  toStreamChunks,
} from '../../src/core/completion.ts'
import { asArray, asObject, type JsonObject } from '../../src/core/json.ts'
import type { Part } from '../../src/core/prompt.ts'
import { responsesClient } from '../../src/formats/responses/client.ts'
import { responsesUpstream } from '../../src/formats/responses/upstream.ts'
import { metrics } from '../formats/chat/support.ts'
import { isComplete } from '../support/chunk-reader.ts'
import { cases, fc } from '../support/properties.ts'

const text = fc.string({ unit: 'grapheme', maxLength: 20 })
const some = fc.string({ unit: 'grapheme', minLength: 1, maxLength: 20 })

/** Events of one response in any order that the canonical form allows: deltas of calls may alternate. */
const block = fc.oneof(
  fc.record({ kind: fc.constant('text' as const), pieces: fc.array(text, { maxLength: 3 }) }),
  fc.record({
    kind: fc.constant('thinking' as const),
    pieces: fc.array(text, { maxLength: 3 }),
    signature: fc.option(some),
  }),
  fc.record({ kind: fc.constant('redacted' as const), data: some }),
  fc.record({ kind: fc.constant('call' as const), name: some, pieces: fc.array(text, { maxLength: 3 }) }),
)
const finish = fc.constantFrom('stop' as const, 'length' as const, 'filtered' as const)
const response = fc.tuple(fc.array(block, { maxLength: 5 }), finish, fc.nat(3))

function eventsOf([blocks, end, late]: Given): readonly StreamPart[] {
  let calls = 0
  const parts: StreamPart[] = [{ type: 'response-start', id: 'chatcmpl-1', model: 'm' }]
  for (const one of blocks) {
    switch (one.kind) {
      case 'text':
        parts.push({ type: 'text-start' }, ...one.pieces.map((piece) => ({ type: 'text-delta', text: piece }) as const))
        break
      case 'thinking':
        parts.push({ type: 'thinking-start' })
        parts.push(...one.pieces.map((piece) => ({ type: 'thinking-delta', text: piece }) as const))
        if (one.signature !== null) parts.push({ type: 'thinking-delta', signature: one.signature })
        break
      case 'redacted':
        parts.push({ type: 'thinking-start', redacted: one.data })
        break
      case 'call': {
        const index = calls++
        parts.push({ type: 'tool-call-start', index, id: `call_${index}`, name: one.name })
        parts.push(...one.pieces.map((input) => ({ type: 'tool-call-delta', index, input }) as const))
      }
    }
  }
  if (calls > 0) parts.push({ type: 'tool-call-delta', index: late % calls, input: ' ' })
  return [
    ...parts,
    { type: 'usage', usage: { inputTokens: 3, outputTokens: 4 } },
    { type: 'response-end', finish: end },
  ]
}

type Given = readonly [readonly Block[], 'stop' | 'length' | 'filtered', number]

type Block =
  | { readonly kind: 'text'; readonly pieces: readonly string[] }
  | { readonly kind: 'thinking'; readonly pieces: readonly string[]; readonly signature: string | null }
  | { readonly kind: 'redacted'; readonly data: string }
  | { readonly kind: 'call'; readonly name: string; readonly pieces: readonly string[] }

const prompt = responsesClient.readPrompt({ model: 'a/b', input: 'Hello?', stream: true })
const context = { prompt, createdSeconds: 1, requestId: 'req_0123' }

function writeEvents(parts: readonly StreamPart[]): readonly SseEvent[] {
  const writer = responsesClient.createStreamWriter(context)
  return [...parts.flatMap((part) => [...writer.write({ parts: [part] })]), ...writer.end(metrics)]
}

function dataOf(event: SseEvent): JsonObject {
  return JSON.parse(event.data) as JsonObject
}

function completionOf(parts: readonly StreamPart[]): Completion {
  const collected = new Collector()
  collected.add({ parts })
  return collected.completion()
}

describe('law: a stream in the responses format', () => {
  it('numbers its events, uses the type of the data as event name, and ends with the whole response', () => {
    fc.assert(
      fc.property(response, (given) => {
        const events = writeEvents(eventsOf(given))
        const data = events.map(dataOf)
        expect(data.map((one) => one['sequence_number'])).toEqual(data.map((_one, index) => index))
        expect(events.map((event) => event.event)).toEqual(data.map((one) => one['type']))
        const whole = responsesClient.writeCompletion(completionOf(eventsOf(given)), metrics, context)
        expect(data.at(-1)?.['response']).toEqual(JSON.parse(whole))
      }),
    )
  })

  it('opens and closes every item, and the items equal the output', () => {
    fc.assert(
      fc.property(response, (given) => {
        const data = writeEvents(eventsOf(given)).map(dataOf)
        const ofType = (type: string): readonly JsonObject[] => data.filter((one) => one['type'] === type)
        const added = ofType('response.output_item.added')
        const done = ofType('response.output_item.done').toSorted(
          (left, right) => Number(left['output_index']) - Number(right['output_index']),
        )
        expect(added.map((one) => one['output_index'])).toEqual(added.map((_one, index) => index))
        expect(asObject(data.at(-1)?.['response'])?.['output']).toEqual(done.map((one) => one['item']))
        expect(added.map((one) => asObject(one['item'])?.['id'])).toEqual(
          done.map((one) => asObject(one['item'])?.['id']),
        )
      }),
    )
  })

  it('is accepted by the official client, which returns the same response', async () => {
    await fc.assert(
      fc.asyncProperty(response, async (given) => {
        const data = writeEvents(eventsOf(given)).map(dataOf)
        async function* events(): AsyncGenerator<JsonObject> {
          yield* data
        }
        const lines = new Stream(events, new AbortController()).toReadableStream()
        const response = await ResponseStream.fromReadableStream(lines).finalResponse()
        const output = asArray(asObject(data.at(-1)?.['response'])?.['output'])
        expect(response.output).toHaveLength(output.length)
        expect(response.output.map((one) => one.id)).toEqual(output.map((one) => asObject(one)?.['id']))
      }),
      { numRuns: cases(60) },
    )
  })

  it('is read back as the written answer, with unchanged frames of its own format', () => {
    fc.assert(
      fc.property(response, (given) => {
        const written = writeEvents(eventsOf(given))
        const read = responsesUpstream.createReader()
        const chunks = written.map(read)
        const collected = new Collector()
        for (const chunk of chunks) collected.add(chunk)
        expect(isComplete(chunks)).toBe(true)
        expect(collected.completion().parts.map(withoutNative)).toEqual(
          completionOf(eventsOf(given)).parts.filter(hasItem).map(withoutNative),
        )
        const writer = responsesClient.createStreamWriter(context)
        const again = [...chunks.flatMap((chunk) => [...writer.write(chunk)]), ...writer.end(metrics)]
        expect(again.slice(0, -1)).toEqual(written.slice(0, -1))
        expect(again.map(dataOf)).toEqual(written.map(dataOf))
      }),
    )
  })
})

describe('law: a whole answer in the responses format', () => {
  it('is read back as the written answer', () => {
    fc.assert(
      fc.property(response, (given) => {
        const completion = completionOf(eventsOf(given))
        const body = JSON.parse(responsesClient.writeCompletion(completion, metrics, context)) as JsonObject
        const read = responsesUpstream.readCompletion(body)
        expect(read.parts.map(withoutNative)).toEqual(completion.parts.filter(hasItem).map(withoutNative))
        expect(read.usage).toMatchObject({ inputTokens: 3, outputTokens: 4 })
        const replayed = new Collector()
        for (const chunk of toStreamChunks(read)) replayed.add(chunk)
        expect(replayed.completion().parts.map(withoutNative)).toEqual(read.parts.map(withoutNative))
      }),
    )
  })

  it('can be the input of the next request', () => {
    fc.assert(
      fc.property(response, (given) => {
        const completion = completionOf(eventsOf(given))
        const written = responsesClient.writeCompletion(completion, metrics, context)
        const kept = responsesClient.turns?.turnToStore({ ...context, requestBody: {} }, written)
        expect(kept?.id).toBe('resp_0123')
        const body = { model: 'a/b', previous_response_id: 'resp_0123', input: 'And then?' }
        expect(responsesClient.turns?.referencesIn(body)).toEqual({
          previousTurnId: 'resp_0123',
          referencedTurnIds: [],
          foreignItemIds: [],
        })
        const whole =
          responsesClient.turns?.resolveReferences(body, {
            previousTurn: kept,
            referencedResponses: new Map(),
            upstreamIds: new Set<string>(),
          }) ?? {}
        const [first, ...others] = responsesClient.readPrompt(whole).messages
        expect(first?.parts.map(withoutNative)).toEqual([{ type: 'text', text: 'Hello?' }])
        expect(others.at(-1)?.parts.map(withoutNative)).toEqual([{ type: 'text', text: 'And then?' }])
        expect(others.slice(0, -1).flatMap((message) => message.parts.map(withoutNative))).toEqual(
          completion.parts.filter(hasItem).map(withoutNative),
        )
      }),
    )
  })
})

/** Checks whether a part has an item: an empty text, or an empty thought without a signature, has none. */
function hasItem(part: Part): boolean {
  if (part.type === 'text') return part.text !== ''
  return part.type !== 'thinking' || part.text !== '' || part.signature !== undefined
}

/** Returns a part without its native value; empty arguments become `{}`. */
function withoutNative(part: Part): unknown {
  const { native: _native, ...fields } = part
  return fields.type === 'tool-call' && fields.input === '' ? { ...fields, input: '{}' } : fields
}
