import { describe, expect, it } from 'vitest'
import type { Json, JsonObject } from '../../src/core/json.ts'
import { textOfMessage, withParts } from '../../src/core/messages.ts'
import { messagesClient } from '../../src/formats/messages/client.ts'
import { messagesUpstream } from '../../src/formats/messages/upstream.ts'
import { parseBody } from '../../src/formats/parse-body.ts'
import { bodyText } from '../support/body-text.ts'
import { cases, fc } from '../support/properties.ts'

const json = fc.jsonValue({ maxDepth: 3 }) as fc.Arbitrary<Json>
const word = fc.string({ minLength: 1, maxLength: 12, unit: 'grapheme' })

/** Fields that no version of the format defines. */
const unknownFields = fc.dictionary(fc.stringMatching(/^x_[a-z]{1,5}$/), json, {
  maxKeys: 3,
}) as fc.Arbitrary<JsonObject>

const withUnknown = (known: fc.Arbitrary<JsonObject>): fc.Arbitrary<JsonObject> =>
  fc.tuple(known, unknownFields).map(([fields, unknown]) => ({ ...fields, ...unknown }))

const object = (fields: Record<string, fc.Arbitrary<unknown>>, optional: Record<string, fc.Arbitrary<unknown>> = {}) =>
  withUnknown(
    fc.record({ ...fields, ...optional }, { requiredKeys: Object.keys(fields) }) as unknown as fc.Arbitrary<JsonObject>,
  )

const constant = fc.constant
const cacheControl = { cache_control: fc.oneof(constant(null), constant({ type: 'ephemeral', ttl: '1h' })) }
const textBlock = object({ type: constant('text'), text: fc.string() }, { ...cacheControl, citations: json })
const source = fc.oneof(
  object({ type: constant('base64'), media_type: word, data: fc.base64String() }),
  object({ type: constant('url'), url: fc.webUrl() }),
  object({ type: constant('file'), file_id: word }),
  object({ type: constant('text'), media_type: word, data: fc.string() }),
  object({ type: constant('x_source') }),
)
const image = object({ type: constant('image'), source }, cacheControl)
const document = object(
  { type: constant('document'), source },
  { title: fc.oneof(word, constant(null)), context: json },
)
const inner = fc.oneof(fc.string(), fc.array(fc.oneof(textBlock, image, document), { maxLength: 3 }))
const block = fc.oneof(
  textBlock,
  image,
  document,
  object(
    { type: constant('tool_use'), id: word, name: word, input: fc.dictionary(word, json, { maxKeys: 3 }) },
    cacheControl,
  ),
  object(
    { type: constant('tool_result'), tool_use_id: word },
    { content: inner, is_error: fc.boolean(), ...cacheControl },
  ),
  object({ type: constant('thinking'), thinking: fc.string() }, { signature: word }),
  object({ type: constant('redacted_thinking'), data: word }),
  object({ type: constant('x_block') }, { text: fc.oneof(fc.string(), constant(0)) }),
)
const message = object({
  role: fc.constantFrom('user', 'assistant', 'system'),
  content: fc.oneof(fc.string(), fc.array(block, { maxLength: 4 })),
})
const tool = fc.oneof(
  object(
    { name: word, input_schema: unknownFields },
    { description: word, strict: fc.boolean(), type: constant('custom') },
  ),
  object({ type: constant('web_search_20260318') }, { name: word }),
)
const nullable = (arbitrary: fc.Arbitrary<unknown>) => fc.oneof(constant(null), arbitrary)
const fraction = fc.double({ min: 0, max: 1, noNaN: true }).map((value) => (Object.is(value, -0) ? 0 : value))

/** Returns a body as `parseBody` does, parsed from JSON text. */
const asParsed = (body: JsonObject): JsonObject => JSON.parse(JSON.stringify(body)) as JsonObject

const anyBody = object(
  {
    model: constant('claude/sonnet'),
    max_tokens: fc.integer({ min: 1, max: 100_000 }),
    messages: fc.array(message, { maxLength: 5 }).map((list) => [{ role: 'user', content: 'Hello' }, ...list]),
  },
  {
    system: nullable(fc.oneof(fc.string(), fc.array(textBlock, { maxLength: 3 }))),
    temperature: nullable(fraction),
    top_p: nullable(fraction),
    top_k: nullable(fc.nat()),
    stream: nullable(fc.boolean()),
    stop_sequences: nullable(fc.array(fc.string(), { maxLength: 16 })),
    tools: nullable(fc.array(tool, { maxLength: 3 })),
    tool_choice: nullable(
      object({ type: fc.constantFrom('auto', 'any', 'none', 'x_choice') }, { disable_parallel_tool_use: fc.boolean() }),
    ),
    thinking: json,
    thread: json,
    metadata: json,
    output_config: nullable(
      object(
        {},
        { effort: word, format: object({ type: fc.constantFrom('json_schema', 'x_format'), schema: unknownFields }) },
      ),
    ),
  },
).map(asParsed)

const write = (prompt: ReturnType<typeof messagesClient.readPrompt>, model = 'claude/sonnet') =>
  messagesUpstream.writePrompt(prompt, model)

describe('unchanged content is written as received', () => {
  it('writes the body that was read, unknown fields at every level included', () => {
    fc.assert(
      fc.property(anyBody, (body) => {
        const written = write(messagesClient.readPrompt(body))
        expect(JSON.parse(bodyText(written.body))).toEqual(body)
        expect(written.ignored).toEqual([])
      }),
      { numRuns: cases(300) },
    )
  })

  it('writes the text as received, except for the model', () => {
    fc.assert(
      fc.property(anyBody, fc.nat({ max: 3 }), (body, spaces) => {
        const text = JSON.stringify(body, null, spaces)
        const parsed = parseBody(new TextEncoder().encode(text))
        const prompt = messagesClient.readPrompt(parsed.body, parsed.received)
        expect(bodyText(write(prompt, 'other').body)).toBe(text.replace('"claude/sonnet"', '"other"'))
      }),
    )
  })

  it('changes one setting and nothing else', () => {
    fc.assert(
      fc.property(anyBody, fc.integer({ min: 100_001, max: 200_000 }), (body, maxTokens) => {
        const prompt = messagesClient.readPrompt(body)
        const written = write({ ...prompt, settings: { ...prompt.settings, maxTokens } })
        expect(JSON.parse(bodyText(written.body))).toEqual({ ...body, max_tokens: maxTokens })
      }),
    )
  })

  it('keeps every part that a rewritten message kept, and every message that was not rewritten', () => {
    fc.assert(
      fc.property(anyBody, fc.nat(), (body, choice) => {
        const prompt = messagesClient.readPrompt(body)
        const chosen = choice % prompt.messages.length
        const messages = prompt.messages.map((one, index) => (index === chosen ? withParts(one, one.parts) : one))
        const again = messagesClient.readPrompt(JSON.parse(bodyText(write({ ...prompt, messages }).body)) as JsonObject)
        const words = (list: typeof prompt.messages) =>
          list.map(textOfMessage).join('').replaceAll(/\s/g, '').split('').toSorted()
        expect(words(again.messages)).toEqual(words(messages))
        expect(again.settings).toEqual(prompt.settings)
        expect(again.tools).toEqual(prompt.tools)
      }),
    )
  })
})
