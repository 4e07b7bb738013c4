import { describe, expect, it } from 'vitest'
import { GatewayError } from '../../src/core/errors.ts'
import type { JsonObject } from '../../src/core/json.ts'
import { Collector } from '../../src/core/completion.ts'
import { chatClient } from '../../src/formats/chat/client.ts'
import { chatUpstream } from '../../src/formats/chat/upstream.ts'
import { parseBody } from '../../src/formats/parse-body.ts'
import { metrics, svcMetrics } from '../formats/chat/support.ts'
import { bodyText as textOfBody } from '../support/body-text.ts'
import { cases, fc } from '../support/properties.ts'

/** Unknown fields: names begin with x_, values are arbitrary. */
const unknown = fc.dictionary(
  fc.string({ unit: 'grapheme', maxLength: 5 }).map((name) => `x_${name}`),
  fc
    .oneof(fc.jsonValue({ maxDepth: 3 }), fc.constant(JSON.parse('{"__proto__":{"polluted":true},"a":1}')))
    .map(asSentByCallers),
  { maxKeys: 3 },
)

/** Any JSON value without negative zero, which JSON text cannot represent, and with `__proto__` as an own property. */
function asSentByCallers(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value))
}

const text = fc.string({ unit: 'grapheme', maxLength: 30 })

const withUnknownFields = (known: fc.Arbitrary<object>): fc.Arbitrary<object> =>
  fc.tuple(known, unknown).map(([fields, others]) => ({ ...fields, ...others }))

const part = withUnknownFields(
  fc.oneof(
    fc.record({ type: fc.constant('text'), text }),
    fc.record({ type: fc.constant('image_url'), image_url: withUnknownFields(fc.record({ url: text })) }),
    fc.record({
      type: fc.constant('file'),
      file: withUnknownFields(fc.record({ file_data: text }, { requiredKeys: [] })),
    }),
    fc.record({ type: text.map((name) => `x_${name}`) }),
  ),
)
const content = fc.oneof(text, fc.array(part, { maxLength: 3 }))
const call = withUnknownFields(
  fc.record({
    id: text,
    type: fc.constant('function'),
    function: withUnknownFields(fc.record({ name: text, arguments: fc.oneof(fc.json(), text) })),
  }),
)
const message = withUnknownFields(
  fc.oneof(
    fc.record({ role: fc.constantFrom('system', 'developer', 'user'), content }),
    fc.record({
      role: fc.constant('assistant'),
      content: fc.option(content),
      tool_calls: fc.array(call, { maxLength: 3 }),
    }),
    fc.record({ role: fc.constant('tool'), tool_call_id: text, content }),
  ),
)
const count = fc.integer({ min: 1, max: 10_000 })
const body = withUnknownFields(
  fc.record(
    {
      model: fc.constantFrom('openai/gpt-4o', 'a/b/c'),
      messages: fc.array(message, { minLength: 1, maxLength: 5 }),
      max_tokens: fc.option(count),
      max_completion_tokens: fc.option(count),
      temperature: fc.double({ min: 0, max: 2, noNaN: true }).map((value) => value + 0),
      top_p: fc.option(fc.constantFrom(0, 0.5, 1)),
      stop: fc.oneof(text, fc.array(text, { maxLength: 4 })),
      n: fc.constantFrom(1, 2),
      top_k: fc.nat(),
      tools: fc.array(
        withUnknownFields(
          fc.record({ type: fc.constant('function'), function: withUnknownFields(fc.record({ name: text })) }),
        ),
        {
          maxLength: 3,
        },
      ),
      functions: fc.array(withUnknownFields(fc.record({ name: text })), { maxLength: 2 }),
      tool_choice: fc.oneof(fc.constantFrom('auto', 'none', 'required'), unknown),
      parallel_tool_calls: fc.boolean(),
      response_format: fc.oneof(
        fc.constant({ type: 'text' }),
        withUnknownFields(
          fc.record({ type: fc.constant('json_schema'), json_schema: withUnknownFields(fc.record({ name: text })) }),
        ),
      ),
      stream: fc.constant(false),
    },
    { requiredKeys: ['model', 'messages'] },
  ),
)

/** Serializes a body with any white space. */
const bodyText = fc
  .tuple(body, fc.constantFrom(undefined, 1, '\t'))
  .map(([value, space]) => JSON.stringify(value, null, space))

describe('law: write(read(body)) = body for chat requests', () => {
  it('as the same text, if it is unchanged', () => {
    fc.assert(
      fc.property(bodyText, (sent) => {
        const parsed = parseBody(new TextEncoder().encode(sent))
        const prompt = chatClient.readPrompt(parsed.body, parsed.received)
        const written = chatUpstream.writePrompt(prompt, prompt.model)
        expect([textOfBody(written.body), written.ignored]).toEqual([sent, []])
      }),
    )
  })

  it('as equal values, if its text was not retained', () => {
    fc.assert(
      fc.property(body, (sent) => {
        const value = JSON.parse(JSON.stringify(sent)) as JsonObject
        const prompt = chatClient.readPrompt(value)
        expect(JSON.parse(textOfBody(chatUpstream.writePrompt(prompt, prompt.model).body))).toEqual(value)
      }),
    )
  })

  it('in every message but the one that was rewritten', () => {
    fc.assert(
      fc.property(body, fc.nat(), (sent, seed) => {
        const value = JSON.parse(JSON.stringify(sent)) as JsonObject & { messages: readonly JsonObject[] }
        const prompt = chatClient.readPrompt(value)
        const at = seed % prompt.messages.length
        const messages = prompt.messages.with(at, { role: 'user', parts: [{ type: 'text', text: 'new' }] })
        const written = JSON.parse(
          textOfBody(chatUpstream.writePrompt({ ...prompt, messages }, prompt.model).body),
        ) as JsonObject
        expect(written).toEqual({ ...value, messages: value.messages.with(at, { role: 'user', content: 'new' }) })
      }),
    )
  })
})

const delta = withUnknownFields(
  fc.oneof(
    fc.record({ content: text }),
    fc.record({ role: fc.constant('assistant'), content: fc.constant('') }),
    fc.record({ reasoning_content: text }),
    fc.record({
      tool_calls: fc.array(
        withUnknownFields(fc.record({ index: fc.nat(3), function: fc.record({ arguments: text }) })),
      ),
    }),
  ),
)
const chunkOf = (deltas: fc.Arbitrary<object>, reason: fc.Arbitrary<string | null>): fc.Arbitrary<string> =>
  withUnknownFields(
    fc.record({
      choices: fc.tuple(withUnknownFields(fc.record({ index: fc.constant(0), delta: deltas, finish_reason: reason }))),
    }),
  ).map((chunk) => JSON.stringify(chunk))
const stream = fc.tuple(
  fc.array(chunkOf(delta, fc.constant(null)), { maxLength: 10 }),
  chunkOf(fc.constant({}), fc.constantFrom('stop', 'length', 'tool_calls', 'x_other')),
)

describe('law: the frames of a chat stream', () => {
  it('are forwarded unchanged, except for the bill on the last one', () => {
    fc.assert(
      fc.property(stream, ([chunks, last]) => {
        const reader = chatUpstream.createReader()
        const prompt = chatClient.readPrompt({
          model: 'a/b',
          messages: [{ role: 'user', content: 'x' }],
          stream: true,
        })
        const writer = chatClient.createStreamWriter({ prompt, createdSeconds: 1 })
        const events = [...chunks, last, '[DONE]'].flatMap((data) => [...writer.write(reader({ data }))])
        const out = [...events, ...writer.end(metrics)].map((event) => event.data)
        expect(out.slice(0, -2)).toEqual(chunks)
        expect(out.at(-2)?.startsWith(last.slice(0, -1))).toBe(true)
        expect(JSON.parse(out.at(-2) ?? '')).toMatchObject({ svc_metrics: svcMetrics })
        expect(out.at(-1)).toBe('[DONE]')
      }),
    )
  })
})

/** Runs an action that must not throw anything but a GatewayError. */
function expectOnlyGatewayErrors(action: () => void): void {
  try {
    action()
  } catch (error) {
    if (!GatewayError.is(error)) throw error
  }
}

const junk = fc.jsonValue({ maxDepth: 4 }).map((value) => value as JsonObject)

/** A valid body with one value replaced by junk. */
const mutated = fc.tuple(body, fc.nat(), junk).map(([sound, seed, value]) => {
  const copy = JSON.parse(JSON.stringify(sound)) as JsonObject
  return mutate(copy, seed, value) as JsonObject
})

function mutate(node: unknown, seed: number, value: unknown): unknown {
  if (typeof node !== 'object' || node === null) return value
  const keys = Object.keys(node)
  const key = keys[seed % Math.max(1, keys.length)]
  if (key === undefined || seed % 7 === 0) return value
  const inner: unknown = Reflect.get(node, key)
  Reflect.set(node, key, mutate(inner, Math.floor(seed / 3), value))
  return node
}

describe('law: junk', () => {
  it('in a request causes a GatewayError or is forwarded', () => {
    fc.assert(
      fc.property(mutated, (sent) => {
        expectOnlyGatewayErrors(() => {
          const parsed = parseBody(new TextEncoder().encode(JSON.stringify(sent)))
          const prompt = chatClient.readPrompt(parsed.body, parsed.received)
          chatUpstream.writePrompt(prompt, 'm')
        })
      }),
      { numRuns: cases(400) },
    )
  })

  it('from an upstream causes a GatewayError or is read', () => {
    const choice = fc.record({ index: junk, message: junk, delta: junk, finish_reason: junk }, { requiredKeys: [] })
    const response = fc.oneof(
      fc.dictionary(fc.string(), junk),
      fc.record(
        { id: junk, model: junk, choices: fc.oneof(fc.array(choice), junk), usage: junk },
        { requiredKeys: [] },
      ),
    )
    fc.assert(
      fc.property(response, fc.nat(700), (body, status) => {
        const value = body as JsonObject
        expectOnlyGatewayErrors(() => void chatUpstream.readCompletion(value))
        expect(GatewayError.is(chatUpstream.readFailure(status, value))).toBe(true)
        expectOnlyGatewayErrors(() => {
          const collected = new Collector()
          collected.add(chatUpstream.createReader()({ data: JSON.stringify(value) }))
          collected.completion()
        })
      }),
      { numRuns: cases(400) },
    )
  })
})
