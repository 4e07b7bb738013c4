import { describe, expect, it } from 'vitest'
import { asObject, type JsonObject } from '../../src/core/json.ts'
import type { Settings } from '../../src/core/prompt.ts'
import { chatClient } from '../../src/formats/chat/client.ts'
import { chatUpstream } from '../../src/formats/chat/upstream.ts'
import { messagesClient } from '../../src/formats/messages/client.ts'
import { messagesUpstream } from '../../src/formats/messages/upstream.ts'
import { parseBody } from '../../src/formats/parse-body.ts'
import { responsesClient } from '../../src/formats/responses/client.ts'
import { responsesUpstream } from '../../src/formats/responses/upstream.ts'
import { bodyText } from '../support/body-text.ts'
import { cases, fc } from '../support/properties.ts'

/** Raw JSON that parsing and serializing would change. */
const odd = fc
  .array(
    fc.oneof(
      fc.constantFrom('12345678901234567890', '1e400', '0.10', '-0', '1E+2', '"\\u0061\\/"', '"\\ud800"', '[ ]', '{ }'),
      fc.constantFrom('"a\\\\"', '"\\\\\\"}"', '"é"', '{"a" : [1.0,"]"]}', 'null', '"svc_metrics"'),
    ),
    { maxLength: 4 },
  )
  .map((items) => `{"x" : [${items.join(' , ')}],"y":\t{"10":1.0,"2":0.10}}`)
const blank = fc.constantFrom('', ' ', '\n', '\t')

/** A JSON object from raw members, with white space around them. */
function writeObject(members: readonly (readonly [name: string, value: string])[], gap: string): string {
  return `{${members.map(([name, value]) => `${gap}"${name}"${gap}:${gap}${value}${gap}`).join(',')}}`
}

const FORMATS = {
  chat: { client: chatClient, upstream: chatUpstream },
  messages: { client: messagesClient, upstream: messagesUpstream },
  responses: { client: responsesClient, upstream: responsesUpstream },
} as const
type Name = keyof typeof FORMATS
const NAMES = Object.keys(FORMATS) as Name[]

function turnsOf(name: Name, raw: string): readonly [string, string] {
  if (name === 'responses') return ['input', `[ {"role":"user","content":"Hi","z":${raw}} ]`]
  if (name === 'chat') return ['messages', `[ {"role":"user","content":"Hi","z":${raw}} ]`]
  const call = `{"type":"tool_use","id":"a","name":"f","input":${raw}}`
  return ['messages', `[ {"role":"user","content":"Hi"}, {"role":"assistant","content":[${call}]} ]`]
}

function writeRequest(name: Name, text: string, change: (settings: Settings) => Settings) {
  const { client, upstream } = FORMATS[name]
  const { body, received } = parseBody(new TextEncoder().encode(text))
  const prompt = client.readPrompt(body, received)
  const written = upstream.writePrompt({ ...prompt, settings: change(prompt.settings) }, 'large')
  return { ...written, body: bodyText(written.body) }
}

describe('law: a request to a vendor of its own format', () => {
  it.each(NAMES)('keeps every member that the gateway does not change: %s', (name) => {
    fc.assert(
      fc.property(odd, odd, blank, fc.boolean(), (first, second, gap, isFirst) => {
        const limit = name === 'responses' ? 'max_output_tokens' : 'max_tokens'
        const build = (model: string, tokens: string, sampling: readonly (readonly [string, string])[]): string => {
          const changed = [['model', model], [limit, tokens], ...sampling] as const
          const kept = [turnsOf(name, first), ['metadata', second], ['zz', first]] as const
          return writeObject(isFirst ? [...changed, ...kept] : [...kept, ...changed], gap)
        }
        const text = build('"a/b"', '100', [['top_p', '0.50']])
        const { body, ignored } = writeRequest(name, text, ({ topP: _topP, ...settings }) => ({
          ...settings,
          maxTokens: 9,
        }))

        expect(body).toBe(build('"large"', '9', []))
        expect(ignored).toEqual(['top_p'])
      }),
      { numRuns: cases(100) },
    )
  })

  it.each(NAMES)('keeps the other messages if one is replaced: %s', (name) => {
    const { client, upstream } = FORMATS[name]
    const [field, turns] = turnsOf(name, '{"n":12345678901234567890}')
    const long = '{"role":"user","content":"A long question"}'
    const text = `{"model":"a/b","max_tokens":9,"${field}":${turns.replace(' ]', `,${long}]`)}}`
    const { body, received } = parseBody(new TextEncoder().encode(text))
    const prompt = client.readPrompt(body, received)
    const messages = [
      ...prompt.messages.slice(0, -1),
      { role: 'user', parts: [{ type: 'text', text: 'Short' }] } as const,
    ]

    const written = upstream.writePrompt({ ...prompt, messages }, 'large')

    expect(bodyText(written.body)).toContain('12345678901234567890')
    expect(bodyText(written.body)).toContain('Short')
    expect(bodyText(written.body)).not.toContain('long')
  })
})

const METRICS = { saved_tokens: 0 }
const writeMetrics = (): JsonObject => METRICS
const SVC_METRICS = `"svc_metrics":${JSON.stringify(METRICS)}`

function contextOf(name: Name) {
  const body = name === 'responses' ? { input: 'Hi' } : { messages: [{ role: 'user', content: 'Hi' }], max_tokens: 9 }
  return { prompt: FORMATS[name].client.readPrompt({ model: 'a/b', ...body }), createdSeconds: 1 }
}

/** Returns the members of a vendor's response. */
function responseOf(name: Name, raw: string): readonly (readonly [string, string])[] {
  if (name === 'chat') {
    const choice = `{"index":0,"message":{"role":"assistant","content":"Yes"},"logprobs":${raw},"finish_reason":"stop"}`
    return [
      ['id', '"c"'],
      ['choices', `[${choice}]`],
      ['zz', raw],
    ]
  }
  if (name === 'messages') {
    const call = `{"type":"tool_use","id":"t","name":"f","input":${raw}}`
    return [
      ['id', '"msg_1"'],
      ['type', '"message"'],
      ['content', `[${call}]`],
      ['stop_reason', '"tool_use"'],
      ['zz', raw],
    ]
  }
  const item = `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Yes","logprobs":[${raw}]}]}`
  return [
    ['id', '"resp_1"'],
    ['status', '"completed"'],
    ['output', `[${item}]`],
    ['metadata', raw],
  ]
}

describe('law: a response of a vendor of its own format', () => {
  it.each(NAMES)('keeps every member that the gateway does not change: %s', (name) => {
    fc.assert(
      fc.property(odd, blank, (raw, gap) => {
        const { client, upstream } = FORMATS[name]
        const usage = (total: string): readonly [string, string][] =>
          name === 'messages' ? [['usage', `{"input_tokens":1,"output_tokens":2,"zz":${raw}${total}}`]] : []
        const text = writeObject([...usage(''), ...responseOf(name, raw)], gap)
        const expected = writeObject([...usage(',"total_tokens":3'), ...responseOf(name, raw)], gap)

        const completion = upstream.readCompletion(JSON.parse(text) as JsonObject, text)
        const written = client.writeCompletion(completion, writeMetrics, contextOf(name))

        expect(written).toBe(name === 'chat' ? expected : `${expected.slice(0, -1)},${SVC_METRICS}}`)
      }),
      { numRuns: cases(100) },
    )
  })

  it.each(['messages', 'responses'] as const)('keeps every member under a new id: %s', (name) => {
    const { client, upstream } = FORMATS[name]
    const text = writeObject(responseOf(name, '{"n":12345678901234567890}'), '')
    const completion = upstream.readCompletion(JSON.parse(text) as JsonObject, text)

    const written = client.writeCompletion({ ...completion, id: 'new_1' }, writeMetrics, contextOf(name))

    expect(written).toContain('12345678901234567890')
    expect(asObject(JSON.parse(written))?.['id']).toBe('new_1')
  })
})

describe('law: a stream of a vendor of its own format', () => {
  const EVENTS: Readonly<Record<Name, (raw: string) => readonly string[]>> = {
    chat: (raw) => [
      `{"id":"c","choices":[{"index":0,"delta":{"content":"Yes"},"logprobs":${raw},"finish_reason":null}]}`,
      `{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"zz":${raw},"usage":{"prompt_tokens":1}}`,
      '[DONE]',
    ],
    messages: (raw) => [
      `{"type":"message_start","message":{"id":"msg_1","zz":${raw},"usage":{"input_tokens":1,"output_tokens":0}}}`,
      `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f","input":${raw}}}`,
      '{"type":"content_block_stop","index":0}',
      `{"type":"message_delta","delta":{"stop_reason":"tool_use","zz":${raw}},"usage":{"output_tokens":2,"zz":${raw}}}`,
      '{"type":"message_stop"}',
    ],
    responses: (raw) => [
      `{"type":"response.created","response":{"id":"r","metadata":${raw}}}`,
      `{"type":"response.completed","response":{"id":"r","status":"completed","output":[],"metadata":${raw}},"zz":${raw}}`,
    ],
  }
  const EXPECTED: Readonly<Record<Name, (raw: string) => readonly string[]>> = {
    chat: (raw) => [
      EVENTS.chat(raw)[0] ?? '',
      `{"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"zz":${raw},${SVC_METRICS}}`,
      '[DONE]',
    ],
    messages: (raw) => [
      ...EVENTS.messages(raw).slice(0, 3),
      `{"type":"message_delta","delta":{"stop_reason":"tool_use","zz":${raw}},"usage":{"output_tokens":2,"zz":${raw},"total_tokens":3},${SVC_METRICS}}`,
      '{"type":"message_stop"}',
    ],
    responses: (raw) => [
      EVENTS.responses(raw)[0] ?? '',
      `{"type":"response.completed","response":{"id":"r","status":"completed","output":[],"metadata":${raw},${SVC_METRICS}},"zz":${raw}}`,
    ],
  }

  it.each(NAMES)('keeps every member that the gateway does not change: %s', (name) => {
    fc.assert(
      fc.property(odd, (raw) => {
        const { client, upstream } = FORMATS[name]
        const writer = client.createStreamWriter(contextOf(name))
        const read = upstream.createReader()
        const events = EVENTS[name](raw).flatMap((data) => {
          const type = /^\{"type":"([\w.]+)"/.exec(data)?.[1]
          return writer.write(read(type === undefined ? { data } : { event: type, data }))
        })

        expect([...events, ...writer.end(writeMetrics)].map(({ data }) => data)).toEqual(EXPECTED[name](raw))
      }),
      { numRuns: cases(100) },
    )
  })
})
