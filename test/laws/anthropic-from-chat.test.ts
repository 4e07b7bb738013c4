import { describe, expect, it } from 'vitest'
import { asArray, type Json, type JsonObject } from '../../src/core/json.ts'
import { textOfPart } from '../../src/core/prompt.ts'
import { messagesClient } from '../../src/formats/messages/client.ts'
import { messagesUpstream } from '../../src/formats/messages/upstream.ts'
import { readPrompt } from '../../src/formats/chat/request-reader.ts'
import { bodyText } from '../support/body-text.ts'
import { cases, fc } from '../support/properties.ts'

const text = fc.oneof(fc.string({ maxLength: 20 }), fc.constant(''), fc.constant(' \n'))
const content = fc.oneof(
  text,
  fc.array(
    text.map((value) => ({ type: 'text', text: value })),
    { maxLength: 3 },
  ),
)
const id = fc.oneof(fc.constantFrom('call_0', 'call_1', 'call.0', 'call_0_2', ''), fc.string({ maxLength: 6 }))
const input = fc.oneof(fc.json({ maxDepth: 2 }), fc.string({ maxLength: 10 }), fc.constant(''))

const messageOf = (role: string): fc.Arbitrary<JsonObject[]> => content.map((value) => [{ role, content: value }])

/** Tool calls of the assistant, then their results in any order, with user messages between them. */
const called: fc.Arbitrary<JsonObject[]> = fc
  .uniqueArray(fc.tuple(id, input), { selector: ([name]) => name, minLength: 1, maxLength: 3 })
  .chain((calls) =>
    fc
      .record({ order: fc.shuffledSubarray(calls, { minLength: calls.length }), results: content, words: content })
      .map(({ order, results, words }): JsonObject[] => [
        {
          role: 'assistant',
          content: null,
          tool_calls: calls.map(([name, args]) => ({
            id: name,
            type: 'function',
            function: { name: 'f', arguments: args },
          })),
        },
        ...order.map(([name], index): JsonObject => ({
          role: 'tool',
          tool_call_id: name,
          content: index === 0 ? results : 'ok',
        })),
        { role: 'user', content: words },
      ]),
  )

const conversation = fc
  .array(fc.oneof(messageOf('system'), messageOf('developer'), messageOf('user'), messageOf('assistant'), called), {
    maxLength: 8,
  })
  .map((turns) => [{ role: 'user', content: 'Hello' }, ...turns.flat()])

const blocks = (message: JsonObject | undefined, type: string): readonly JsonObject[] =>
  asArray(message?.['content']).filter((block): block is JsonObject => (block as JsonObject)['type'] === type)

describe('any chat conversation for a model that is reached in the message format', () => {
  it('alternates roles, pairs every call with one result and contains no empty text', () => {
    fc.assert(
      fc.property(conversation, (messages) => {
        const prompt = readPrompt({ model: 'x/y', messages })
        const body = JSON.parse(bodyText(messagesUpstream.writePrompt(prompt, 'sonnet').body)) as JsonObject
        const turns = body['messages'] as readonly JsonObject[]
        const calls = new Set<Json | undefined>()
        turns.forEach((turn, index) => {
          expect(turn['role']).toBe(index % 2 === 0 ? 'user' : 'assistant')
          expect(asArray(turn['content']).length).toBeGreaterThan(0)
          for (const block of blocks(turn, 'text')) expect(String(block['text']).trim()).not.toBe('')
          const asked = blocks(turns[index - 1], 'tool_use').map((block) => block['id'])
          const results = blocks(turn, 'tool_result')
          expect(results.map((block) => block['tool_use_id']).toSorted()).toEqual(asked.toSorted())
          expect(asArray(turn['content']).slice(0, results.length)).toEqual(results)
          for (const called of blocks(turn, 'tool_use')) {
            expect(called['id']).toMatch(/^[a-zA-Z0-9_-]+$/)
            expect(calls.has(called['id'])).toBe(false)
            calls.add(called['id'])
          }
        })
        expect(body['max_tokens']).toBeGreaterThanOrEqual(1)
        const read = messagesClient.readPrompt(body)
        const words = (list: typeof read.messages) =>
          list
            .flatMap((message) => message.parts.filter((part) => part.type !== 'tool-call'))
            .map(textOfPart)
            .join('')
            .replaceAll(/\s/g, '')
            .split('')
            .toSorted()
        expect(words(read.messages)).toEqual(words(prompt.messages))
      }),
      { numRuns: cases(500) },
    )
  })
})
