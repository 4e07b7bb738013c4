import { describe, expect, it } from 'vitest'
import { parseExactObject, serializeExactly } from '../../src/core/exact-json.ts'
import type { JsonObject } from '../../src/core/json.ts'
import type { Prompt } from '../../src/core/prompt.ts'
import { chatClient } from '../../src/formats/chat/client.ts'
import { chatUpstream } from '../../src/formats/chat/upstream.ts'
import type { ClientFormat, UpstreamFormat } from '../../src/formats/format.ts'
import { geminiUpstream } from '../../src/formats/gemini/upstream.ts'
import { messagesClient } from '../../src/formats/messages/client.ts'
import { messagesUpstream } from '../../src/formats/messages/upstream.ts'
import { parseBody } from '../../src/formats/parse-body.ts'
import { portablePrompt } from '../../src/formats/portable.ts'
import { responsesClient } from '../../src/formats/responses/client.ts'
import { responsesUpstream } from '../../src/formats/responses/upstream.ts'
import { bodyText } from '../support/body-text.ts'
import { fc } from '../support/properties.ts'

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

const QUOTED = JSON.stringify(NUMBERS)

/** A request of the messages format with two calls, the second with the numbers. */
function messagesPrompt(first: string, second: string): Prompt {
  const text = `{"model":"a/b","max_tokens":9,"system":"é","messages":[{"role":"user","content":"Hi 1.0"},
    {"role":"assistant","content":[{"type":"text","text":"Look"},
      {"type":"tool_use","id":"c1","name":"f","input":${first}},{"type":"tool_use","id":"c2","name":"f", "input" : ${second} }]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"c1"},{"type":"tool_result","tool_use_id":"c2","content":"1.0"}]}]}`
  const { body, received } = parseBody(new TextEncoder().encode(text))
  return messagesClient.readPrompt(body, received)
}

function sentTo(upstream: UpstreamFormat, prompt: Prompt): string {
  const target = { dialect: upstream.dialect, model: {}, isLossy: false }
  return bodyText(upstream.writePrompt(portablePrompt(prompt, target).prompt, 'b').body)
}

describe('numbers in a tool_use of a request in the messages format', () => {
  it.each([
    [chatUpstream, `"arguments":${QUOTED}`],
    [responsesUpstream, `"arguments":${QUOTED}`],
    [geminiUpstream, `"args":${NUMBERS}`],
  ])('are sent as received to a vendor of another format: $dialect', (upstream, expected) => {
    expect(sentTo(upstream, messagesPrompt('{"n":1}', NUMBERS))).toContain(expected)
    expect(sentTo(upstream, messagesPrompt(NUMBERS, '{"n":1}'))).toContain(expected)
  })

  it('are sent without the blanks between them, which escapes would double', () => {
    const spaced = '{\n\t"n" : 12345678901234567890 ,\r\n "s":"a b\\" , c"\n}'

    expect(sentTo(chatUpstream, messagesPrompt('{"n":1}', spaced))).toContain(
      JSON.stringify('{"n":12345678901234567890,"s":"a b\\" , c"}'),
    )
  })

  it('are sent as received if other messages of the conversation are removed', () => {
    const prompt = messagesPrompt(NUMBERS, NUMBERS)
    const shortened = { ...prompt, messages: prompt.messages.filter(({ role }) => role !== 'system') }

    expect(sentTo(chatUpstream, shortened).split(QUOTED)).toHaveLength(3)
  })

  it('are sent as they were parsed if the received text is unknown', () => {
    const { native, ...prompt } = messagesPrompt('{"n":0.50}', '{}')
    const { received: _received, ...parsed } = native

    expect(sentTo(chatUpstream, { ...prompt, native: parsed })).toContain(String.raw`"arguments":"{\"n\":0.5}"`)
  })
})

const RESPONSES: readonly (readonly [UpstreamFormat, string])[] = [
  [
    messagesUpstream,
    `{"type":"message","id":"m","content":[{"type":"text","text":"1.0"},{"type":"tool_use","id":"c","name":"f", "input" : ${NUMBERS} }],"stop_reason":"tool_use"}`,
  ],
  [
    messagesUpstream,
    `{"type":"message","id":"m","content":[{"type":"tool_use","name":"f","input":${NUMBERS}}],"stop_reason":"tool_use"}`,
  ],
  [
    geminiUpstream,
    `{"candidates":[{"content":{"parts":[{"text":"1.0"},{"functionCall":{"name":"f","args":${NUMBERS}}}]},"finishReason":"STOP"}]}`,
  ],
  [
    chatUpstream,
    `{"choices":[{"message":{"content":"1.0","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":${NUMBERS}}}]}}]}`,
  ],
]

const START = '{"type":"message_start","message":{"id":"m","usage":{"input_tokens":1,"output_tokens":0}}}'
const MESSAGE_END = [
  '{"type":"content_block_stop","index":0}',
  '{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":2}}',
  '{"type":"message_stop"}',
]
const blockStart = (block: string): string => `{"type":"content_block_start","index":0,"content_block":${block}}`
const STREAMS: readonly (readonly [UpstreamFormat, readonly string[]])[] = [
  [messagesUpstream, [START, blockStart(`{"type":"tool_use","id":"c","name":"f","input":${NUMBERS}}`), ...MESSAGE_END]],
  [messagesUpstream, [START, blockStart(`{"type":"tool_use","name":"f","input":${NUMBERS}}`), ...MESSAGE_END]],
  [
    geminiUpstream,
    [
      `{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":${NUMBERS}}}]}}]}`,
      '{"candidates":[{"finishReason":"STOP"}]}',
    ],
  ],
  [
    chatUpstream,
    [
      `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":${NUMBERS}}}]}}]}`,
      '{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}',
      '[DONE]',
    ],
  ],
]

const CLIENTS: readonly ClientFormat[] = [chatClient, responsesClient, messagesClient]

describe.each(CLIENTS.map((client) => [client.dialect, client] as const))(
  'numbers in a call for a client of %s',
  (_, client) => {
    const context = { prompt: client === responsesClient ? responses : chat, createdSeconds: 1 }

    it.each(RESPONSES)('are returned as the vendor wrote them: $dialect', (upstream, text) => {
      const completion = upstream.readCompletion(JSON.parse(text) as JsonObject, text)
      const written = client.writeCompletion(completion, () => ({}), context)

      expect(written).toContain(client === messagesClient || isNative(client, upstream) ? NUMBERS : QUOTED)
    })

    it.each(STREAMS)('are streamed as the vendor wrote them: $dialect', (upstream, events) => {
      const writer = client.createStreamWriter(context)
      const read = upstream.createReader()
      const chunks = events.map((data) => read({ data }))
      const written = [...chunks.flatMap((chunk) => writer.write(chunk)), ...writer.end(() => ({}))]
      const data = written.map((event) => event.data).join('\n')

      expect(data).toContain(isNative(client, upstream) ? NUMBERS : QUOTED)
    })
  },
)

function isNative(client: ClientFormat, upstream: UpstreamFormat): boolean {
  return client.dialect === upstream.dialect
}

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
