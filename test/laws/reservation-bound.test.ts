import { countTokens as countCl100k } from 'gpt-tokenizer/encoding/cl100k_base'
import { countTokens as countO200k } from 'gpt-tokenizer/encoding/o200k_base'
import { describe, expect, it } from 'vitest'
import type { Json, JsonObject } from '../../src/core/json.ts'
import type { Model } from '../../src/core/ports.ts'
import type { Prompt } from '../../src/core/prompt.ts'
import { messagesClient } from '../../src/formats/messages/client.ts'
import { chatUpstream } from '../../src/formats/chat/upstream.ts'
import { parseBody } from '../../src/formats/parse-body.ts'
import { bodyText } from '../support/body-text.ts'
import { responsesUpstream } from '../../src/formats/responses/upstream.ts'
import { boundByBytes, tokensOutsideText, weighPrompt } from '../../src/tokens/estimate.ts'
import { PromptMeter, createTokenizer } from '../../src/tokens/meter.ts'
import { cases, fc } from '../support/properties.ts'
import { chatFormat, messagesFormat, responsesFormat, type WholeFormat } from '../support/two-way-formats.ts'

const model: Model = {
  id: 'upstream-model',
  family: 'f',
  contextWindowTokens: 10_000_000,
  maxOutputTokens: 1000,
  price: { input: 1, output: 1 },
  imageTokens: 1,
}
const plain = { disallowedSpecial: new Set<string>() }

/** Scripts, white space and symbols with the most tokens per byte. */
const range = (from: number, to: number): fc.Arbitrary<string> =>
  fc
    .array(fc.integer({ min: from, max: to }), { minLength: 1, maxLength: 40 })
    .map((codes) => String.fromCodePoint(...codes))
const text = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 60 }),
  fc.string({ unit: 'grapheme', maxLength: 60 }),
  range(0x13a0, 0x13f5), // Cherokee
  range(0x300, 0x1fff),
  range(0x250, 0x2af), // phonetic signs
  range(0x1f300, 0x1faff),
  range(0x09, 0x0d),
  range(0xd800, 0xdfff), // lone surrogates
  fc.stringMatching(/^[0-9]{1,60}$/),
  fc.stringMatching(/^[a-zA-Z]{1,60}$/),
  fc.constantFrom(
    '\\"'.repeat(20),
    '{"a":1e20,"b":[1E9,2e8]}',
    '\n \n\t'.repeat(9),
    '<|endoftext|>',
    '    '.repeat(20),
  ),
)
const number = fc.oneof(fc.double({ noNaN: true, noDefaultInfinity: true }), fc.constantFrom(1e20, 1e-6, 0))
const { tree } = fc.letrec<{ tree: Json; leaf: Json }>((tie) => ({
  leaf: fc.oneof(text, number, fc.boolean(), fc.constant(null)),
  tree: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    tie('leaf'),
    fc.array(tie('tree'), { maxLength: 4 }),
    fc.dictionary(text, tie('tree'), { maxKeys: 4, noNullPrototype: true }),
  ),
}))
const schema = fc
  .tuple(tree, text)
  .map(([inner, description]): JsonObject => ({ type: 'object', description, properties: { inner } }))
const image = 'iVBORw0KGgo'.repeat(30)

const chatMessage = fc.oneof(
  fc.tuple(text, tree).map(([content, extra]): JsonObject => ({ role: 'user', content, name: 'n', extra })),
  fc.array(text, { minLength: 1, maxLength: 3 }).map((texts): JsonObject => ({
    role: 'user',
    content: [
      ...texts.map((one) => ({ type: 'text', text: one })),
      { type: 'image_url', image_url: { url: `data:image/png;base64,${image}` } },
    ],
  })),
  fc
    .tuple(text, text)
    .map(([content, reasoning]): JsonObject => ({ role: 'assistant', content, reasoning_content: reasoning })),
)
const chatBody = fc
  .record({ messages: fc.array(chatMessage, { minLength: 1, maxLength: 3 }), schema, field: tree, words: text })
  .map(({ messages, schema: parameters, field, words }): JsonObject => ({
    model: 'chat/large',
    messages,
    tools: [{ type: 'function', function: { name: 'look_up', description: words, parameters } }],
    response_format: { type: 'json_schema', json_schema: { name: 'answer', schema: parameters } },
    prediction: { type: 'content', content: words },
    unknown_field: field,
  }))
const messageBody = fc
  .record({ texts: fc.array(text, { minLength: 1, maxLength: 3 }), system: text, schema, field: tree })
  .map(({ texts, system, schema: input_schema, field }): JsonObject => ({
    model: 'anthropic/large',
    max_tokens: 16,
    system,
    messages: texts.map((one) => ({
      role: 'user',
      content: [
        { type: 'text', text: one },
        { type: 'image', source: { type: 'base64', media_type: 'image/png', data: image } },
      ],
    })),
    tools: [{ name: 'look_up', input_schema }],
    output_config: { format: { type: 'json_schema', schema: input_schema } },
    unknown_field: field,
  }))
const responsesBody = fc
  .record({ input: text, instructions: text, schema, field: tree })
  .map(({ input, instructions, schema: parameters, field }): JsonObject => ({
    model: 'openai/large',
    instructions,
    input: [{ role: 'user', content: input }],
    tools: [{ type: 'function', name: 'look_up', parameters }],
    text: { format: { type: 'json_schema', name: 'answer', schema: parameters } },
    unknown_field: field,
  }))

/** A conversation that every format can express: calls, results, failures, images, documents, unusual ids. */
const portable = fc
  .record({
    words: fc.array(
      text.filter((one) => one.trim() !== ''),
      { minLength: 1, maxLength: 3 },
    ),
    input: fc.oneof(
      fc.dictionary(text, tree, { maxKeys: 4, noNullPrototype: true }),
      fc.constant({ values: Array.from({ length: 40 }, () => 1e20) }),
    ),
    result: text,
    name: fc.stringMatching(/^[a-z_]{1,20}$/),
    id: fc.oneof(
      fc.constant('call_1'),
      text.filter((one) => one.length > 0),
    ),
    failed: fc.boolean(),
    title: text,
    schema,
  })
  .map(({ words, input, result, name, id, failed, title, schema: input_schema }): JsonObject => ({
    model: 'anthropic/large',
    max_tokens: 16,
    messages: [
      ...words.map((content) => ({ role: 'user', content })),
      { role: 'assistant', content: [{ type: 'tool_use', id, name, input }] },
      {
        role: 'user',
        content: [
          {
            type: 'tool_result',
            tool_use_id: id,
            is_error: failed,
            content: [
              { type: 'text', text: result },
              { type: 'image', source: { type: 'base64', media_type: 'image/png', data: image } },
            ],
          },
          { type: 'document', title, source: { type: 'text', media_type: 'text/plain', data: result } },
        ],
      },
    ],
    tools: [{ name, input_schema }],
    stream: true,
  }))

interface Sent {
  readonly prompt: Prompt
  readonly bytes: number
  readonly body: string
}

function send(from: WholeFormat, to: WholeFormat, written: string): Sent {
  const { body, received, maxSerializedBytes: bytes } = parseBody(new TextEncoder().encode(written))
  const prompt = from.readPrompt(body, received)
  return { prompt, bytes, body: bodyText(to.writePrompt(prompt, model.id).body) }
}

/** Counts like a vendor with one token per digit. */
function countDigits(sent: string): number {
  const digits = sent.match(/\d/g)?.length ?? 0
  return digits + sent.split(/\d+/).reduce((sum, piece) => sum + countO200k(piece, plain), 0)
}

function expectBound({ prompt, bytes, body }: Sent, isTranslated: boolean): void {
  const sent = body.replaceAll(image, '')
  // Without the overhead that vendors add: the bytes alone must cover the sent text.
  const weight = { ...weighPrompt(prompt, bytes), overhead: 0, images: 0 }
  const bound = boundByBytes(weight, model, isTranslated)
  expect(bound).toBeGreaterThanOrEqual(countO200k(sent, plain))
  expect(bound).toBeGreaterThanOrEqual(countCl100k(sent, plain))
  expect(bound).toBeGreaterThanOrEqual(countDigits(sent))
}

const FORMATS = { chat: chatFormat, message: messagesFormat, responses: responsesFormat }
type Name = keyof typeof FORMATS

/** Serializes JSON with the white space, escapes and exponents that callers may use. */
const escaped = (written: string): string =>
  written.replace(/[\u0080-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
const spelled = fc.constantFrom(
  (body: JsonObject) => JSON.stringify(body),
  (body: JsonObject) => JSON.stringify(body, null, 2),
  (body: JsonObject) => escaped(JSON.stringify(body)),
  (body: JsonObject) => JSON.stringify(body).replaceAll('100000000000000000000', '1e20'),
)

describe('the bound by bytes is at least what any tokenizer counts', () => {
  it.each<[Name, fc.Arbitrary<JsonObject>]>([
    ['chat', chatBody],
    ['message', messageBody],
    ['responses', responsesBody],
  ])('of a %s body that is sent in its own format', (name, bodies) => {
    fc.assert(
      fc.property(bodies, spelled, fc.boolean(), (body, spell, isRewritten) => {
        const format = FORMATS[name]
        const sent = send(format, format, spell(body))
        expectBound(sent, false)
        // A changed setting causes the whole body to be serialized again.
        const prompt = isRewritten
          ? { ...sent.prompt, settings: { ...sent.prompt.settings, maxTokens: 999 } }
          : sent.prompt
        expectBound({ ...sent, prompt, body: bodyText(format.writePrompt(prompt, model.id).body) }, false)
      }),
      { numRuns: cases(200) },
    )
  })

  it.each<Name>(['chat', 'responses'])('of a message body that is translated to the %s format', (to) => {
    fc.assert(
      fc.property(portable, spelled, (body, spell) =>
        expectBound(send(messagesFormat, FORMATS[to], spell(body)), true),
      ),
      { numRuns: cases(200) },
    )
  })

  it.each<Name>(['message', 'responses'])('of a chat body that is translated to the %s format', (to) => {
    fc.assert(
      fc.property(portable, spelled, (body, spell) => {
        const chat = chatUpstream.writePrompt(messagesClient.readPrompt(body), 'chat/large').body
        expectBound(send(chatFormat, FORMATS[to], spell(JSON.parse(bodyText(chat)))), true)
      }),
      { numRuns: cases(200) },
    )
  })

  it.each<Name>(['message', 'chat'])('of a responses body that is translated to the %s format', (to) => {
    fc.assert(
      fc.property(portable, spelled, (body, spell) => {
        const own = responsesUpstream.writePrompt(messagesClient.readPrompt(body), 'openai/large').body
        expectBound(send(responsesFormat, FORMATS[to], spell(JSON.parse(bodyText(own)))), true)
      }),
      { numRuns: cases(200) },
    )
  })
})

describe('the exact count', () => {
  const meter = new PromptMeter(createTokenizer())

  it('of a body is at least the count of each text in it, fields that no format knows included', async () => {
    await fc.assert(
      fc.asyncProperty(chatBody, async (body) => {
        const { prompt, bytes } = send(chatFormat, chatFormat, JSON.stringify(body))
        const beside = tokensOutsideText(weighPrompt(prompt, bytes), model)
        const texts = textsOf(body).filter((one) => !one.includes(image))
        for (const [vocabulary, reference] of [
          ['o200k', countO200k],
          ['cl100k', countCl100k],
        ] as const) {
          const counted = (await meter.countBody(prompt, vocabulary)) + beside
          const least = texts.reduce((sum, one) => sum + reference(one.replace(/\p{Surrogate}/gu, ''), plain), 0)
          expect(counted).toBeGreaterThanOrEqual(least)
        }
      }),
      { numRuns: cases(60) },
    )
  }, 60_000)

  it('of a cl100k model agrees with the reference tokenizer', async () => {
    const tokenizer = createTokenizer()
    await fc.assert(
      fc.asyncProperty(text, async (raw) => {
        const clean = raw.replace(/\p{Surrogate}|\ufeff/gu, '')
        expect(await tokenizer.count(clean, undefined, 'cl100k')).toBe(countCl100k(clean, plain))
      }),
      { numRuns: cases(200) },
    )
  })

  it('omits only the base64 text of images', async () => {
    const body = (data: string): JsonObject => ({
      model: 'chat/large',
      messages: [
        {
          role: 'user',
          content: [
            { type: 'image_url', image_url: { url: `data:image/png;base64,${data}` }, note: 'word '.repeat(500) },
          ],
        },
      ],
    })
    const counted = await Promise.all(
      [image, image.repeat(50)].map((data) =>
        meter.countBody(send(chatFormat, chatFormat, JSON.stringify(body(data))).prompt, 'o200k'),
      ),
    )
    expect(counted[0]).toBe(counted[1])
    expect(counted[0]).toBeGreaterThan(500)
  })
})

function textsOf(value: Json | undefined): readonly string[] {
  if (typeof value === 'string') return [value]
  if (typeof value !== 'object' || value === null) return []
  return Object.values(value).flatMap(textsOf)
}
