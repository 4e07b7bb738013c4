import { describe, expect, it } from 'vitest'
import type { JsonObject } from '../../../src/core/json.ts'
import type { Prompt } from '../../../src/core/prompt.ts'
import { cacheKeyOf, type CacheKey } from '../../../src/plugins/cache/cacheability.ts'
import { responsesClient } from '../../../src/formats/responses/client.ts'
import { chatPrompt, chat, message } from './fixture.ts'

const owner = 'key key-1'
const modelName = 'chat/large'

async function requireCacheKey(prompt: Prompt): Promise<CacheKey> {
  const key = cacheKeyOf(prompt, { owner, modelName })
  if (key === undefined) throw new Error('The prompt has no cache key.')
  return key
}

const scopeOf = async (prompt: Prompt): Promise<string> => (await requireCacheKey(prompt)).scope

const history = [
  { role: 'system', content: 'Be kind.' },
  { role: 'user', content: 'Hello' },
  { role: 'assistant', content: 'Hi!' },
]
const question = { role: 'user', content: 'And now?' }
const padded = (turn: (typeof history)[number]): JsonObject => ({ ...turn, content: `${turn.content} ` })

describe('the scope', () => {
  it('is the same for another question', async () => {
    const [one, other] = await Promise.all([
      requireCacheKey(chatPrompt('What is it?')),
      requireCacheKey(chatPrompt('Who is it?')),
    ])

    expect(one.scope).toBe(other.scope)
    expect(one.id).not.toBe(other.id)
  })

  it('is the same for texts that differ in their Unicode form or in white space at their ends', async () => {
    const [one, other] = await Promise.all([
      requireCacheKey(chatPrompt('\n Who is Rene\u0301? ')),
      requireCacheKey(chatPrompt('Who is Ren\u00e9?')),
    ])

    expect(one.id).toBe(other.id)
  })

  it.each(['What  is it?', 'What is\nit?', 'What is\u00a0it?', 'what is it?', 'What is it', 'What is it?!'])(
    'has another id for %j',
    async (text) => {
      const [one, other] = await Promise.all([
        requireCacheKey(chatPrompt(text)),
        requireCacheKey(chatPrompt('What is it?')),
      ])

      expect(one.id).not.toBe(other.id)
    },
  )

  it('does not depend on fields that cannot change the answer', async () => {
    const fields = { user: 'u', safety_identifier: 's', metadata: { a: 'b' }, prompt_cache_key: 'k' }
    const streamed = { stream: true, stream_options: { include_usage: true } }
    const [chatKeys, messageKeys] = [
      [{}, fields, { ...fields, ...streamed, user: 'other' }].map((given) => scopeOf(chatPrompt('What?', given))),
      [{}, { metadata: { user_id: 'u' }, stream: true }].map((given) =>
        scopeOf(message({ messages: [question], ...given })),
      ),
    ]
    const body = { model: 'chat/large', input: 'What?' }
    const responses = [{}, fields, { ...streamed, metadata: { c: 'd' } }].map((given) =>
      scopeOf(responsesClient.readPrompt({ ...body, ...given })),
    )

    for (const keys of [chatKeys, messageKeys, responses]) expect(new Set(await Promise.all(keys)).size).toBe(1)
  })

  it('does not depend on the order of fields inside fields, except for the properties of a schema', async () => {
    const withSchema = (schema: JsonObject): Promise<string> =>
      scopeOf(chatPrompt('What?', { response_format: { type: 'json_schema', json_schema: { name: 'n', schema } } }))
    const [a, b] = [{ type: 'string' }, { type: 'number' }]
    const one = await withSchema({ type: 'object', properties: { a, b }, required: ['a'] })

    expect(await withSchema({ required: ['a'], properties: { a, b }, type: 'object' })).toBe(one)
    expect(await withSchema({ type: 'object', properties: { b, a }, required: ['a'] })).not.toBe(one)
    expect(await withSchema({ type: 'object', properties: { a, b }, required: ['b'] })).not.toBe(one)
  })

  it('differs when the question is split into parts in another way', async () => {
    const splits = [['a', 'b'], ['a\n\nb'], ['a', '', 'b'], ['a\n\n', 'b']]
    const scopes = splits.map((texts) =>
      requireCacheKey(chat({ messages: [{ role: 'user', content: texts.map((text) => ({ type: 'text', text })) }] })),
    )

    expect(new Set((await Promise.all(scopes)).map(({ id }) => id)).size).toBe(splits.length)
  })

  it('differs by white space at the ends of earlier texts', async () => {
    const scopes = history.map((_, changed) =>
      scopeOf(
        chat({
          messages: [...history.map((turn, at) => (at === changed ? padded(turn) : turn)), question],
        }),
      ),
    )
    const plain = await scopeOf(chat({ messages: [...history, question] }))

    expect((await Promise.all(scopes)).map((scope) => scope === plain)).toEqual([false, false, false])
  })

  it.each<[string, JsonObject]>([
    ['temperature', { temperature: 0.5 }],
    ['temperature 0', { temperature: 0 }],
    ['max_tokens', { max_tokens: 5 }],
    ['top_p', { top_p: 0.5 }],
    ['top_k', { top_k: 5 }],
    ['a top_k that is none', { top_k: -1 }],
    ['stop', { stop: ['x'] }],
    ['other stops', { stop: ['x', 'y'] }],
    ['tools', { tools: [{ type: 'function', function: { name: 'f', parameters: {} } }] }],
    ['other tools', { tools: [{ type: 'function', function: { name: 'g', parameters: {} } }] }],
    ['tool_choice', { tool_choice: 'none' }],
    ['response_format', { response_format: { type: 'json_object' } }],
    ['service_tier', { service_tier: 'flex' }],
    ['seed', { seed: 1 }],
    ['an unknown field', { vendor_mode: true }],
    ['an unknown field that is null', { vendor_mode: null }],
    ['two limits', { max_tokens: 5, max_completion_tokens: 5 }],
  ])('differs by %s', async (_, fields) => {
    const others = [{}, { temperature: 0.7 }, { max_tokens: 6 }, { seed: 2 }, { vendor_mode: false }]
    const scope = await scopeOf(chatPrompt('What is it?', fields))

    for (const other of others) expect(scope).not.toBe(await scopeOf(chatPrompt('What is it?', other)))
  })

  it('distinguishes the two names of the output limit only if both are present', async () => {
    const limits = [{ max_tokens: 5 }, { max_completion_tokens: 5 }, { max_tokens: 4, max_completion_tokens: 5 }]
    const [one, other, both] = await Promise.all(limits.map((fields) => scopeOf(chatPrompt('What?', fields))))

    expect(one).toBe(other)
    expect(both).not.toBe(one)
  })

  it('does not depend on streaming or on the order of fields', async () => {
    const plain = await scopeOf(chatPrompt('What is it?', { seed: 1, top_a: 2 }))

    expect(await scopeOf(chatPrompt('What is it?', { top_a: 2, seed: 1, stream: true }))).toBe(plain)
    expect(await scopeOf(chatPrompt('What?', { top_a: 2, seed: 1, stream_options: { include_usage: true } }))).toBe(
      plain,
    )
  })

  it('differs by owner and model', async () => {
    const cacheKeys = [
      { owner, modelName },
      { owner: 'key key-2', modelName },
      { owner: 'global', modelName },
      { owner, modelName: 'chat/small' },
    ].map((options) => cacheKeyOf(chatPrompt('What is it?'), options))
    const scopes = (await Promise.all(cacheKeys)).map((key) => key?.scope)

    expect(new Set(scopes).size).toBe(4)
  })

  it('differs by the system prompt and by every earlier turn', async () => {
    const texts = ['Be kind.', 'Hello', 'Hi!']
    const variants = texts.map((_, changed) =>
      history.map((turn, index) => (index === changed ? { ...turn, content: `${turn.content}!` } : turn)),
    )
    const all = [history, ...variants, history.slice(0, 1), history.slice(1), [...history, ...history.slice(1)], []]
    const scopes = await Promise.all(all.map((turns) => scopeOf(chat({ messages: [...turns, question] }))))

    expect(new Set(scopes).size).toBe(all.length)
  })

  it('differs when the same text is split into parts in another way', async () => {
    const userMessage = (...texts: readonly string[]): JsonObject => ({
      messages: [...texts.map((content) => ({ role: 'user', content })), question],
    })
    const parts = (...texts: readonly string[]): JsonObject => ({
      messages: [{ role: 'user', content: texts.map((text) => ({ type: 'text', text })) }, question],
    })
    const bodies = [
      userMessage('a', 'b'),
      userMessage('ab'),
      userMessage('a\nb'),
      parts('a', 'b'),
      userMessage('a', 'b', ''),
      userMessage('a\nfrom 4:\nuser'),
    ]
    const scopes = await Promise.all(bodies.map((body) => scopeOf(chat(body))))

    expect(new Set(scopes).size).toBe(bodies.length)
  })

  it('differs by role and by name', async () => {
    const turns = [
      { role: 'user', content: 'x' },
      { role: 'assistant', content: 'x' },
      { role: 'system', content: 'x' },
      { role: 'developer', content: 'x' },
      { role: 'user', content: 'x', name: 'ann' },
      { role: 'user', content: 'x', name: 'bob' },
    ]
    const scopes = await Promise.all(turns.map((turn) => scopeOf(chat({ messages: [turn, question] }))))

    expect(new Set(scopes).size).toBe(turns.length)
  })

  it('differs by images and other parts of the last message, which is then compared exactly', async () => {
    const image = (url: string): Prompt =>
      chat({
        messages: [
          {
            role: 'user',
            content: [
              { type: 'text', text: 'What is it?' },
              { type: 'image_url', image_url: { url } },
            ],
          },
        ],
      })
    const [one, other, none] = await Promise.all([
      requireCacheKey(image('https://a.example/1')),
      requireCacheKey(image('https://a.example/2')),
      requireCacheKey(chatPrompt('What is it?')),
    ])

    expect(new Set([one.scope, other.scope, none.scope]).size).toBe(3)
    expect([one.comparable, other.comparable, none.comparable]).toEqual([false, false, true])
  })

  it('differs by the position of an image between the texts of the last message', async () => {
    const text = (value: string): JsonObject => ({ type: 'text', text: value })
    const image = { type: 'image_url', image_url: { url: 'https://images.example/1.png' } }
    const orders = [
      [text('Bob:'), image, text('Al:')],
      [image, text('Bob:'), text('Al:')],
      [text('Bob:'), text('Al:'), image],
    ]
    const scopes = await Promise.all(orders.map((content) => scopeOf(chat({ messages: [{ role: 'user', content }] }))))

    expect(new Set(scopes).size).toBe(orders.length)
  })

  it('differs by headers that change the answer', () => {
    const lists = [undefined, 'anthropic-beta: a\n', 'anthropic-beta: b\n', 'anthropic-version: b\n']
    const scopes = lists.map((headers) => cacheKeyOf(chatPrompt('What?'), { owner, modelName, headers })?.scope)

    expect(new Set(scopes).size).toBe(lists.length)
  })

  it('is exact for a request whose last turn has tool results', async () => {
    const after = (result: string): Prompt =>
      chat({
        messages: [
          { role: 'user', content: 'What is it?' },
          {
            role: 'assistant',
            content: null,
            tool_calls: [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{}' } }],
          },
          { role: 'tool', tool_call_id: 'c', content: result },
        ],
      })
    const [one, other] = await Promise.all([requireCacheKey(after('1')), requireCacheKey(after('2'))])

    expect(one.scope).not.toBe(other.scope)
    expect(one.comparable).toBe(false)
  })

  it('is exact for long questions and for program text', async () => {
    const cacheKeys = ['x'.repeat(4001), '```\na\n```', 'if x:\n  y()'].map((text) => requireCacheKey(chatPrompt(text)))

    for (const key of await Promise.all(cacheKeys)) expect(key.comparable).toBe(false)
  })

  it('is the same in both formats for fields of both', async () => {
    const turns = history.slice(1)
    const fromChat = chat({ messages: [...history, question], max_tokens: 100, temperature: 0.5, stop: ['x'] })
    const fromMessages = message({
      system: 'Be kind.',
      messages: [...turns, question],
      temperature: 0.5,
      stop_sequences: ['x'],
    })
    const blocks = message({
      system: [{ type: 'text', text: 'Be kind.' }],
      messages: [...turns, { role: 'user', content: [{ type: 'text', text: 'And now?' }] }],
      temperature: 0.5,
      stop_sequences: ['x'],
    })
    const cacheKeys = await Promise.all([fromChat, fromMessages, blocks].map(requireCacheKey))

    expect(new Set(cacheKeys.map((key) => key.id)).size).toBe(1)
  })

  it('differs between formats for fields of one format', async () => {
    const fields = { service_tier: 'auto' }
    const [one, other] = await Promise.all([
      scopeOf(chat({ messages: [question], max_tokens: 100, ...fields })),
      scopeOf(message({ messages: [question], ...fields })),
    ])

    expect(one).not.toBe(other)
  })

  it('differs by cache_control and by thinking', async () => {
    const block = { type: 'text', text: 'And now?' }
    const marked = { ...block, cache_control: { type: 'ephemeral' } }
    const scopes = await Promise.all([
      scopeOf(message({ messages: [{ role: 'user', content: [block] }] })),
      scopeOf(message({ messages: [{ role: 'user', content: [marked] }] })),
      scopeOf(message({ messages: [question], thinking: { type: 'enabled', budget_tokens: 1024 } })),
    ])

    expect(new Set(scopes).size).toBe(3)
  })

  it.each<[string, Prompt]>([
    ['without a user message', chat({ messages: [{ role: 'system', content: 'x' }] })],
    ['for several answers', chatPrompt('What?', { n: 2 })],
    ['for log probabilities', chatPrompt('What?', { logprobs: true })],
    ['in a thread that the upstream holds', message({ messages: [question], thread: { type: 'create' } })],
  ])('does not exist %s', async (_, prompt) => {
    expect(await cacheKeyOf(prompt, { owner, modelName })).toBeUndefined()
  })
})
