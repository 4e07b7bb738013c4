import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { parseExactObject, serializeExactly } from '../../src/core/exact-json.ts'
import type { JsonObject } from '../../src/core/json.ts'
import { chatClient } from '../../src/formats/chat/client.ts'
import { geminiUpstream } from '../../src/formats/gemini/upstream.ts'
import { messagesClient } from '../../src/formats/messages/client.ts'
import { messagesUpstream } from '../../src/formats/messages/upstream.ts'
import { responsesClient } from '../../src/formats/responses/client.ts'
import { enableTranslation } from '../../src/formats/translators.ts'

enableTranslation()

const NUMBERS = '{"order":12345678901234567890,"huge":1e400,"price":1.0,"zero":-0,"list":[0.10]}'
const call = { id: 'c', type: 'function', function: { name: 'f', arguments: NUMBERS } }
const chat = chatClient.readPrompt({
  model: 'a/b',
  messages: [
    { role: 'user', content: 'Hello @0: "@0:0" @1:' },
    { role: 'assistant', content: null, tool_calls: [call] },
    { role: 'tool', tool_call_id: 'c', content: NUMBERS },
  ],
})
const responses = responsesClient.readPrompt({
  model: 'a/b',
  input: [
    { role: 'user', content: 'Hello' },
    { type: 'function_call', call_id: 'c', name: 'f', arguments: NUMBERS },
    { type: 'function_call_output', call_id: 'c', output: 'Done.' },
  ],
})

describe('numbers that JavaScript cannot represent', () => {
  it.each([
    ['chat', chat],
    ['responses', responses],
  ])('in the arguments of a call of the %s format are sent as received to other formats', (_, prompt) => {
    const messages = messagesUpstream.writePrompt(prompt, 'b').body
    const contents = geminiUpstream.writePrompt(prompt, 'b').body

    expect(messages).toContain(`"input":${NUMBERS}`)
    expect(contents).toContain(`"args":${NUMBERS}`)
    for (const body of [messages, contents]) expect(() => JSON.parse(String(body)) as unknown).not.toThrow()
  })

  it('in a result are sent as received in the Gemini format', () => {
    expect(geminiUpstream.writePrompt(chat, 'b').body).toContain(`"response":${NUMBERS}`)
  })

  it('in a call that a chat vendor answers are returned as received in the messages format', () => {
    const completion = {
      id: 'x',
      model: 'b',
      parts: [{ type: 'tool-call', id: 'c', name: 'f', input: NUMBERS }],
      finish: 'tool-call',
    } as const
    const context = { prompt: chat, createdSeconds: 1 }
    const text = messagesClient.writeCompletion(completion, () => ({}), context)

    expect(text).toContain(`"input":${NUMBERS}`)
    expect(JSON.parse(text)).toMatchObject({ stop_reason: 'tool_use', content: [{ type: 'tool_use', id: 'c' }] })
  })
})

describe('an object that is serialized exactly', () => {
  it('equals its plain serialization, whatever its strings contain', () => {
    const string = fc.oneof(fc.string(), fc.constantFrom('@0:', '@0:0', '"@0:0"', '@1:1', '@00:0', '@0:@1:0'))
    fc.assert(
      fc.property(fc.dictionary(string, string), fc.array(string), (fields, list) => {
        const build = (): JsonObject => ({ fields, list, input: parseExactObject('{"n":12345678901234567890}') })
        const rest = JSON.stringify({ fields, list })
        expect(serializeExactly(build)).toBe(`${rest.slice(0, -1)},"input":{"n":12345678901234567890}}`)
      }),
    )
  })

  it('is serialized once if all numbers stay the same', () => {
    expect(serializeExactly(() => ({ input: parseExactObject('{"n": 12.5}') }))).toBe('{"input":{"n":12.5}}')
  })
})
