import fc from 'fast-check'
import { describe, expect, it } from 'vitest'

import type { Settings } from '../../src/core/prompt.ts'
import { chatClient } from '../../src/formats/chat/client.ts'
import { chatUpstream } from '../../src/formats/chat/upstream.ts'
import { messagesClient } from '../../src/formats/messages/client.ts'
import { messagesUpstream } from '../../src/formats/messages/upstream.ts'
import { parseBody } from '../../src/formats/parse-body.ts'
import { responsesClient } from '../../src/formats/responses/client.ts'
import { responsesUpstream } from '../../src/formats/responses/upstream.ts'
import { bodyText } from '../support/body-text.ts'

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
      { numRuns: 100 },
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
