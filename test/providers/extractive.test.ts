import { describe, expect, it } from 'vitest'
import { costOf } from '../../src/core/money.ts'
import type { JsonObject } from '../../src/core/json.ts'
import { Collector } from '../../src/core/completion.ts'
import type { ProviderCall } from '../../src/core/ports.ts'
import { chatClient } from '../../src/formats/chat/client.ts'
import { extractive } from '../../src/testing/extractive/extractive.ts'
import { composeCompletion } from '../../src/testing/extractive/completion.ts'
import { fillSchema } from '../../src/testing/extractive/fill-schema.ts'
import { isResponseSource } from '../../src/upstream/attempts.ts'
import { manualRuntime } from '../support/manual-runtime.ts'
import { collectChunks, failureOf, providerCall, textOf, textOfCompletion } from '../support/provider-call.ts'
import { noNetwork } from '../support/no-network.ts'
import { isComplete } from '../support/chunk-reader.ts'
import { fc } from '../support/properties.ts'

const provider = extractive()

const facts =
  'The observatory was built in 1931. Its telescope has a mirror of 2.5 metres. The kitchen serves soup on Mondays. ' +
  'Visitors park behind the old mill.'

function call(messages: readonly JsonObject[] | string, more: JsonObject = {}, signal?: AbortSignal): ProviderCall {
  const list = typeof messages === 'string' ? [{ role: 'user', content: messages }] : messages
  const prompt = chatClient.readPrompt({ model: 'extractive/extractive', messages: list, ...more })
  const model = provider.models[0]
  if (model === undefined) throw new Error('the provider lists its models')
  const runtime = manualRuntime(noNetwork)
  return providerCall(prompt, runtime, { model, ...(signal !== undefined && { signal }) })
}

const say = async (...given: Parameters<typeof call>): Promise<string> =>
  textOfCompletion((await provider.complete(call(...given))).response)

describe('the extractive provider', () => {
  it.each([
    ['When was the observatory built?', 'The observatory was built in 1931.'],
    ['How large is the mirror of the telescope?', 'Its telescope has a mirror of 2.5 metres.'],
    ['Where do visitors park?', 'Visitors park behind the old mill.'],
  ])('answers %j with the matching sentence', async (question, response) => {
    const messages = [
      { role: 'system', content: 'You are a guide.' },
      { role: 'user', content: facts },
      { role: 'assistant', content: 'Understood.' },
      { role: 'user', content: question },
    ]
    expect(await say(messages)).toBe(response)
  })

  it('finds the answer in the message that contains the question', async () => {
    expect(await say(`${facts} What does the kitchen serve?`)).toBe('The kitchen serves soup on Mondays.')
    expect(await say(`${facts} Tell me about the mirror.`)).toBe('Its telescope has a mirror of 2.5 metres.')
  })

  it('reports that no sentence matches', async () => {
    expect(await say('Hello!')).toBe('The conversation contains no answer to: Hello!')
  })

  it('summarizes a long text without a question to at most a quarter', async () => {
    const text = Array.from(
      { length: 200 },
      (_, n) => `Report ${n} tells of the harbour and its ships. Noise ${n * 7}.`,
    ).join(' ')
    const digest = await say([
      { role: 'system', content: 'Summarize.' },
      { role: 'user', content: text },
    ])
    expect(digest).toContain('harbour')
    expect(digest.length).toBeLessThanOrEqual(text.length / 4)
  })

  it('returns the same answer each time, with and without a stream', async () => {
    const question = `${facts} When was the observatory built?`
    const whole = (await provider.complete(call(question))).response
    const chunks = await collectChunks((await provider.stream(call(question, { stream: true }))).response)
    const joined = new Collector()
    for (const chunk of chunks) joined.add(chunk)
    expect(joined.completion()).toEqual({ ...whole, parts: [{ type: 'text', text: textOfCompletion(whole) }] })
    expect(isComplete(chunks)).toBe(true)
    expect(chunks.filter((chunk) => chunk.parts[0]?.type === 'text-delta').length).toBeGreaterThan(1)
    expect((await provider.complete(call(question))).response).toEqual(whole)
  })

  it('applies the output limit', async () => {
    const { response } = await provider.complete(call(`${facts} When was the observatory built?`, { max_tokens: 3 }))
    expect([textOfCompletion(response), response.finish]).toEqual(['The observat', 'length'])
    expect(response.usage?.outputTokens).toBe(3)
  })

  it('applies stop sequences', async () => {
    const { response } = await provider.complete(
      call(`${facts} When was the observatory built?`, { stop: ['1931', ' built'] }),
    )
    expect([textOfCompletion(response), response.finish, response.stopSequence]).toEqual([
      'The observatory was',
      'stop-sequence',
      ' built',
    ])
  })

  it('calls the required tool, with arguments from the text', async () => {
    const tools = [
      { type: 'function', function: { name: 'ping' } },
      {
        type: 'function',
        function: {
          name: 'weather',
          parameters: {
            type: 'object',
            properties: {
              city: { type: 'string' },
              days: { type: 'integer', minimum: 1, maximum: 7 },
              unit: { enum: ['kelvin', 'celsius'] },
              note: { type: 'string' },
            },
            required: ['city', 'days', 'unit'],
          },
        },
      },
    ]
    const question = 'What is the weather in Reykjavik for the next 12 days, in celsius?'
    const named = { tools, tool_choice: { type: 'function', function: { name: 'weather' } } }
    const { response } = await provider.complete(call(question, named))
    expect(response.finish).toBe('tool-call')
    expect(response.parts).toMatchObject([{ type: 'tool-call', name: 'weather' }])
    const [part] = response.parts
    expect(part?.type === 'tool-call' && JSON.parse(part.input)).toEqual({
      city: 'Reykjavik',
      days: 7,
      unit: 'celsius',
    })
    const required = (await provider.complete(call(question, { tools: tools.slice(1), tool_choice: 'required' })))
      .response
    expect(required.parts).toMatchObject([{ name: 'weather' }])
    const free = (await provider.complete(call(question, { tools }))).response
    expect(free.parts).toMatchObject([{ type: 'text' }])
  })

  it('answers in the required format', async () => {
    const schema = { type: 'object', properties: { year: { type: 'integer' } }, required: ['year'] }
    const format = { response_format: { type: 'json_schema', json_schema: { name: 'x', schema } } }
    expect(JSON.parse(await say('In 1931, what happened?', format))).toEqual({ year: 1931 })
    const free = { response_format: { type: 'json_object' } }
    expect(JSON.parse(await say(`${facts} Where do visitors park?`, free))).toEqual({
      response: 'Visitors park behind the old mill.',
    })
  })

  it('reports usage, and the small model costs less', async () => {
    const { response } = await provider.complete(call('How are you?'))
    const [big, small] = provider.models
    if (response.usage === undefined || big === undefined || small === undefined) throw new Error('usage is reported')
    expect(response.usage.inputTokens).toBe(3)
    expect(costOf(response.usage, big.price)).toBeGreaterThan(costOf(response.usage, small.price))
    expect(costOf(response.usage, small.price)).toBeGreaterThan(0)
    expect([big.small, small.family]).toEqual([small.id, big.family])
  })

  it('rejects when its caller disconnects', async () => {
    const gone = AbortSignal.abort(new Error('gone'))
    expect((await failureOf(provider.complete(call('x', {}, gone)))).message).toBe('gone')
    const controller = new AbortController()
    const { response } = await provider.stream(call(`${facts} Where?`, { stream: true }, controller.signal))
    if (isResponseSource(response)) throw new Error('the extractive provider has no wire format')
    const steps = response[Symbol.asyncIterator]()
    await steps.next()
    controller.abort(new Error('left'))
    await expect(steps.next()).rejects.toThrow('left')
  })

  it.each([
    ['a summary', (n: number) => `Report ${n} describes the harbor. `, ''],
    ['lines', (n: number) => `line ${n}\n`, 'Which line is 77?'],
    ['one word', () => 'word', ''],
    ['an answer', (n: number) => `Ship ${n} is red. `, 'Which ship is blue?'],
  ])('offers a pause for each slice of a long text: %s', async (_, sentence, question) => {
    const text = Array.from({ length: 20_000 }, (_unused, n) => sentence(n)).join('') + question
    let offered = 0
    const pause = (): undefined => void offered++
    const whole = await composeCompletion(call(text), pause)
    // A text is read twice, and its messages are counted.
    expect(offered).toBeGreaterThanOrEqual(Math.floor(text.length / 32_768) * 2)
    const paused = await composeCompletion(call(text), () => Promise.resolve())
    expect(textOfCompletion(paused)).toBe(textOfCompletion(whole))
  })

  it('accepts any text', async () => {
    await fc.assert(
      fc.asyncProperty(fc.string({ unit: 'binary' }), fc.string({ unit: 'grapheme' }), async (one, other) => {
        const messages = [
          { role: 'user', content: one },
          { role: 'assistant', content: other },
          { role: 'user', content: one + other },
        ]
        const whole = await say(messages)
        const chunks = await collectChunks((await provider.stream(call(messages))).response)
        expect(textOf(chunks)).toBe(whole)
      }),
    )
  })

  it('accepts a name and prices, and rejects unknown options', async () => {
    const other = extractive({ name: 'offline', price: { input: 3, output: 15 } })
    expect([other.name, other.model('extractive')?.price.input]).toEqual(['offline', 3])
    const wrong = await failureOf(Promise.resolve().then(() => extractive({ speed: 1 } as never)))
    expect(wrong.message).toBe('extractive: speed: there is no such option. The options are name, price, smallPrice.')
  })
})

describe('filling a schema', () => {
  it.each([
    [{ type: 'string' }, 'Find "red shoes" now', 'red shoes'],
    [{ type: 'string' }, 'just this', 'just this'],
    [{ type: 'string', maxLength: 3 }, 'just this', 'jus'],
    [{ type: 'number' }, 'about -2.5 degrees', -2.5],
    [{ type: 'number', minimum: 4 }, 'none', 4],
    [{ type: ['null', 'boolean'] }, '', true],
    [{ enum: ['a-b', 'c-d'] }, 'I want C-D', 'c-d'],
    [{ const: 5 }, '', 5],
    [{ anyOf: [{ type: 'integer' }, { type: 'null' }] }, 'so 3', 3],
    [{ type: 'array', items: { type: 'integer' }, minItems: 2 }, '1 2 3', [1, 2]],
    [
      { $ref: '#/$defs/a', $defs: { a: { type: 'object', properties: { b: {} }, required: ['b'] } } },
      'hi',
      { b: 'hi' },
    ],
    [{ properties: { a: { type: 'string' } } }, 'hi', {}],
    [undefined, 'hi', 'hi'],
  ])('schema %j with the text %j returns %j', (schema, text, value) => {
    expect(fillSchema(schema as JsonObject | undefined, text)).toEqual(value)
  })

  it('terminates for a recursive schema', () => {
    const schema = {
      $ref: '#/$defs/a',
      $defs: { a: { type: 'object', properties: { a: { $ref: '#/$defs/a' } }, required: ['a'] } },
    }
    expect(JSON.stringify(fillSchema(schema, 'x')).length).toBeLessThan(200)
  })
})
