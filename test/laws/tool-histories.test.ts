import { describe, expect, it } from 'vitest'
import { asArray, asObject, asString, isJsonObject, type Json, type JsonObject } from '../../src/core/json.ts'
import type { UpstreamDialect } from '../../src/core/prompt.ts'
import { chatClient } from '../../src/formats/chat/client.ts'
import { chatUpstream } from '../../src/formats/chat/upstream.ts'
import type { ClientFormat, UpstreamFormat } from '../../src/formats/format.ts'
import { geminiUpstream } from '../../src/formats/gemini/upstream.ts'
import { messagesClient } from '../../src/formats/messages/client.ts'
import { messagesUpstream } from '../../src/formats/messages/upstream.ts'
import { portablePrompt } from '../../src/formats/portable.ts'
import { responsesClient } from '../../src/formats/responses/client.ts'
import { responsesUpstream } from '../../src/formats/responses/upstream.ts'
import { bodyText } from '../support/body-text.ts'
import { cases, fc } from '../support/properties.ts'

const UPSTREAMS: Readonly<Record<UpstreamDialect, UpstreamFormat>> = {
  chat: chatUpstream,
  messages: messagesUpstream,
  responses: responsesUpstream,
  gemini: geminiUpstream,
}

interface Translated {
  readonly body: JsonObject
  readonly ignored: readonly string[]
}

/** Translates as the pipeline does for a provider of another format. */
function translate(client: ClientFormat, body: JsonObject, dialect: UpstreamDialect, isLossy = false): Translated {
  const received = client.readPrompt(body)
  const { prompt, ignored } = portablePrompt(received, { dialect, model: {}, isLossy })
  const written = UPSTREAMS[dialect].writePrompt(prompt, 'model')
  return {
    body: asObject(JSON.parse(bodyText(written.body))) ?? {},
    ignored: [...ignored, ...written.ignored],
  }
}

function objectsIn(value: Json | undefined): readonly JsonObject[] {
  return asArray(value).filter(isJsonObject)
}

/** One entry of a vendor's conversation, without its format. */
interface Entry {
  readonly role: 'assistant' | 'results' | 'other'
  readonly calls: readonly string[]
  readonly results: readonly string[]
}

const READ: Readonly<Record<Exclude<UpstreamDialect, 'responses'>, (body: JsonObject) => readonly Entry[]>> = {
  chat: (body) =>
    objectsIn(body['messages']).map((message) => {
      const calls = objectsIn(message['tool_calls']).map(({ id }) => String(id))
      if (message['role'] === 'assistant') return { role: 'assistant', calls, results: [] }
      if (message['role'] !== 'tool') return { role: 'other', calls, results: [] }
      return { role: 'results', calls, results: [String(message['tool_call_id'])] }
    }),
  messages: (body) =>
    objectsIn(body['messages']).map((message) => {
      const blocks = objectsIn(message['content'])
      const results = blocks.flatMap(({ tool_use_id: id }) => asString(id) ?? [])
      const calls = blocks.flatMap(({ type, id }) => (type === 'tool_use' ? String(id) : []))
      return {
        role: message['role'] === 'assistant' ? 'assistant' : results.length > 0 ? 'results' : 'other',
        calls,
        results,
      }
    }),
  gemini: (body) =>
    objectsIn(body['contents']).map((content) => {
      const parts = objectsIn(content['parts'])
      const calls = parts.flatMap(({ functionCall }) => asString(asObject(functionCall)?.['id']) ?? [])
      const results = parts.flatMap(({ functionResponse }) => asString(asObject(functionResponse)?.['id']) ?? [])
      return {
        role: content['role'] === 'model' ? 'assistant' : results.length > 0 ? 'results' : 'other',
        calls,
        results,
      }
    }),
}

/** Returns the violated rules of a format in which the results directly follow their calls. */
function faultsOfTurns(entries: readonly Entry[]): readonly string[] {
  const faults: string[] = []
  let open = new Set<string>()
  for (const [index, { role, calls, results }] of entries.entries()) {
    if (role === 'assistant' && entries[index - 1]?.role === 'assistant') faults.push('adjacent assistant messages')
    if (role !== 'results') for (const id of open) faults.push(`${id} has no result`)
    if (role !== 'results') open = new Set()
    for (const id of results) if (!open.delete(id)) faults.push(`the result of ${id} is an orphan`)
    for (const id of calls) open.add(id)
  }
  return [...faults, ...[...open].map((id) => `${id} has no result`)]
}

function faultsOfItems(body: JsonObject): readonly string[] {
  const open = new Set<string>()
  const orphans: string[] = []
  for (const { type, call_id: id } of objectsIn(body['input'])) {
    if (type === 'function_call') open.add(String(id))
    if (type === 'function_call_output' && !open.delete(String(id)))
      orphans.push(`the result of ${String(id)} is an orphan`)
  }
  return [...orphans, ...[...open].map((id) => `${id} has no result`)]
}

function faultsOf(dialect: UpstreamDialect, body: JsonObject): readonly string[] {
  return dialect === 'responses' ? faultsOfItems(body) : faultsOfTurns(READ[dialect](body))
}

/** One round: assistant messages with calls, then their results, in any order that the format allows. */
interface Round {
  readonly messages: readonly { readonly text: string; readonly calls: number }[]
  readonly isReversed: boolean
  /** True if each result is in its own message, in formats in which one message can have all. */
  readonly isSplit: boolean
  /** The position of each result among later items, where the format allows it. */
  readonly delays: readonly number[]
  readonly between: 'nothing' | 'assistant' | 'developer'
  readonly hasImage: boolean
  readonly kind: 'function' | 'custom' | 'search' | 'shell'
}

const round: fc.Arbitrary<Round> = fc.record({
  messages: fc.array(fc.record({ text: fc.constantFrom('', 'Let me see.'), calls: fc.nat({ max: 2 }) }), {
    minLength: 1,
    maxLength: 3,
  }),
  isReversed: fc.boolean(),
  isSplit: fc.boolean(),
  delays: fc.array(fc.nat({ max: 3 }), { minLength: 6, maxLength: 6 }),
  between: fc.constantFrom('nothing', 'assistant', 'developer'),
  hasImage: fc.boolean(),
  kind: fc.constantFrom('function', 'custom', 'search', 'shell'),
})
const history = fc.array(round, { minLength: 1, maxLength: 4 })

const PNG = 'iVBORw0KGgo='

function idsOf(index: number, { messages }: Round): readonly (readonly string[])[] {
  return messages.map(({ calls }, message) =>
    Array.from({ length: calls }, (_, call) => `c_${index}_${message}_${call}`),
  )
}

function inOrder<T>(items: readonly T[], isReversed: boolean): readonly T[] {
  return isReversed ? items.toReversed() : items
}

function asMessages(rounds: readonly Round[]): JsonObject {
  const messages = rounds.flatMap((one, index) => {
    const ids = idsOf(index, one)
    const assistant = one.messages.map(({ text }, message) => ({
      role: 'assistant',
      content: [
        { type: 'text', text: text === '' ? 'So:' : text },
        ...(ids[message] ?? []).map((id) => ({ type: 'tool_use', id, name: 'f', input: {} })),
      ],
    }))
    const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: PNG } }
    const results = inOrder(ids.flat(), one.isReversed).map((id) => ({
      type: 'tool_result',
      tool_use_id: id,
      content: one.hasImage ? [image] : 'done',
    }))
    const go = { type: 'text', text: 'Go on.' }
    // Agents that run tools in parallel send each result when it is ready.
    const users = one.isSplit
      ? [...results.map((result) => ({ role: 'user', content: [result, go] })), { role: 'user', content: [go] }]
      : [{ role: 'user', content: [...results, go] }]
    const system = { role: 'system', content: 'By the way.' }
    const turns = one.between === 'developer' ? assistant.flatMap((turn) => [turn, system]).slice(0, -1) : assistant
    return [...turns, ...users]
  })
  const tools = [
    { name: 'f', input_schema: { type: 'object' } },
    { name: 'g', input_schema: { type: 'object' }, defer_loading: true },
  ]
  return { model: 'a/b', max_tokens: 9, tools, messages: [{ role: 'user', content: 'Hi' }, ...messages] }
}

function asChat(rounds: readonly Round[]): JsonObject {
  const messages = rounds.flatMap((one, index) => {
    const ids = idsOf(index, one)
    const assistant = one.messages.map(({ text }, message) => {
      const calls = (ids[message] ?? []).map((id) => ({
        id,
        type: 'function',
        function: { name: 'f', arguments: '{}' },
      }))
      return { role: 'assistant', content: text === '' ? 'So:' : text, ...(calls.length > 0 && { tool_calls: calls }) }
    })
    const results = inOrder(ids.flat(), one.isReversed).map((id) => ({
      role: 'tool',
      tool_call_id: id,
      content: 'done',
    }))
    return [...assistant, ...results, { role: 'user', content: 'Go on.' }]
  })
  const tools = [{ type: 'function', function: { name: 'f', parameters: { type: 'object' } } }]
  return { model: 'a/b', tools, messages: [{ role: 'user', content: 'Hi' }, ...messages] }
}

const CALLS = {
  function: (call_id: string): JsonObject => ({ type: 'function_call', call_id, name: 'f', arguments: '{}' }),
  custom: (call_id: string): JsonObject => ({ type: 'custom_tool_call', call_id, name: 'c', input: 'x' }),
  search: (call_id: string): JsonObject => ({ type: 'tool_search_call', call_id, execution: 'client', arguments: {} }),
  shell: (call_id: string): JsonObject => ({ type: 'local_shell_call', call_id, id: `l${call_id}`, action: {} }),
} as const

function itemsOfRound(index: number, one: Round): readonly JsonObject[] {
  const ids = idsOf(index, one)
  const items: JsonObject[] = one.messages.flatMap(({ text }, message) => [
    ...(text === '' ? [] : [{ role: 'assistant', content: text }]),
    ...(ids[message] ?? []).map(CALLS[one.kind]),
  ])
  const output = one.hasImage ? [{ type: 'input_image', image_url: `data:image/png;base64,${PNG}` }] : 'done'
  const type = one.kind === 'custom' ? 'custom_tool_call_output' : 'function_call_output'
  if (one.between !== 'nothing') items.push({ role: one.between, content: 'By the way.' })
  for (const [position, id] of inOrder(ids.flat(), one.isReversed).entries()) {
    const call = items.findIndex(({ call_id }) => call_id === id)
    const at = Math.min(items.length, Math.max(call + 1, items.length - (one.delays[position] ?? 0)))
    items.splice(at, 0, { type, call_id: id, output })
  }
  return [...items, { role: 'user', content: 'Go on.' }]
}

function asResponses(rounds: readonly Round[]): JsonObject {
  const tools = [
    { type: 'function', name: 'f', parameters: { type: 'object' }, defer_loading: true },
    { type: 'custom', name: 'c' },
    { type: 'tool_search', execution: 'client' },
  ]
  return {
    model: 'a/b',
    tools,
    input: [{ role: 'user', content: 'Hi' }, ...rounds.flatMap((one, index) => itemsOfRound(index, one))],
  }
}

const CASES = [
  ['messages', messagesClient, asMessages, ['chat', 'responses', 'gemini']],
  ['chat', chatClient, asChat, ['messages', 'responses', 'gemini']],
  ['responses', responsesClient, asResponses, ['chat', 'messages', 'gemini']],
] as const

describe('law: a history of tool calls', () => {
  it.each(CASES)('keeps the rules of every other format: %s', (_, client, write, dialects) => {
    fc.assert(
      fc.property(history, fc.constantFrom<UpstreamDialect>(...dialects), (rounds, dialect) => {
        const { body } = translate(client, write(rounds), dialect, true)
        expect(faultsOf(dialect, body)).toEqual([])
      }),
      { numRuns: cases(400) },
    )
  })
})

describe('adjacent assistant messages with tool calls', () => {
  it('become one chat message, and the results follow it', () => {
    const { body } = translate(
      messagesClient,
      {
        model: 'a/b',
        max_tokens: 9,
        tools: [{ name: 'f', input_schema: { type: 'object' } }],
        messages: [
          { role: 'user', content: 'Hi' },
          { role: 'assistant', content: [{ type: 'tool_use', id: 'a', name: 'f', input: { n: 1 } }] },
          {
            role: 'assistant',
            content: [
              { type: 'text', text: 'And' },
              { type: 'tool_use', id: 'b', name: 'f', input: {} },
            ],
          },
          {
            role: 'user',
            content: [
              { type: 'tool_result', tool_use_id: 'a', content: '1' },
              { type: 'tool_result', tool_use_id: 'b', content: '2' },
            ],
          },
        ],
      },
      'chat',
    )

    const call = (id: string, args: string): JsonObject => ({
      id,
      type: 'function',
      function: { name: 'f', arguments: args },
    })
    expect(body['messages']).toEqual([
      { role: 'user', content: 'Hi' },
      { role: 'assistant', content: 'And', tool_calls: [call('a', '{"n":1}'), call('b', '{}')] },
      { role: 'tool', tool_call_id: 'a', content: '1' },
      { role: 'tool', tool_call_id: 'b', content: '2' },
    ])
  })
})

describe('results in several user messages', () => {
  const use = (id: string): JsonObject => ({ type: 'tool_use', id, name: 'f', input: {} })
  const result = (id: string): JsonObject => ({ type: 'tool_result', tool_use_id: id, content: `r${id}` })
  const call = (id: string): JsonObject => ({ id, type: 'function', function: { name: 'f', arguments: '{}' } })

  function chatMessages(...messages: readonly JsonObject[]): Json | undefined {
    const tools = [{ name: 'f', input_schema: { type: 'object' } }]
    return translate(messagesClient, { model: 'a/b', max_tokens: 9, tools, messages }, 'chat').body['messages']
  }

  it('directly follow the chat message with their calls', () => {
    expect(
      chatMessages(
        { role: 'user', content: 'Hi' },
        { role: 'assistant', content: [use('a'), use('b')] },
        { role: 'user', content: [result('a'), { type: 'text', text: 'One.' }] },
        { role: 'user', content: [result('b'), { type: 'text', text: 'Two.' }] },
      ),
    ).toEqual([
      { role: 'user', content: 'Hi' },
      { role: 'assistant', content: null, tool_calls: [call('a'), call('b')] },
      { role: 'tool', tool_call_id: 'a', content: 'ra' },
      { role: 'tool', tool_call_id: 'b', content: 'rb' },
      { role: 'user', content: 'One.' },
      { role: 'user', content: 'Two.' },
    ])
  })

  it('belong to the last call with their id, and stay in place without a call', () => {
    const rounds = [1, 2].flatMap((round) => [
      { role: 'assistant', content: [use('same')] },
      { role: 'user', content: [{ ...result('same'), content: `result ${round}` }] },
    ])
    const messages = asArray(chatMessages({ role: 'user', content: 'Hi' }, ...rounds)).map(asObject)

    expect(messages.map((message) => message?.['role'])).toEqual(['user', 'assistant', 'tool', 'assistant', 'tool'])
    expect(messages[2]?.['content']).toBe('result 1')
    expect(chatMessages({ role: 'user', content: 'Hi' }, { role: 'user', content: [result('x')] })).toMatchObject([
      { role: 'user' },
      { role: 'tool', tool_call_id: 'x' },
    ])
  })
})

describe('tools with defer_loading', () => {
  const tool = { name: 'g', description: 'Gets.', input_schema: { type: 'object' }, defer_loading: true }
  const search = { type: 'tool_search_tool_regex_20251119', name: 'tool_search_tool_regex' }
  const found = { type: 'tool_reference', tool_name: 'g' }
  const body = {
    model: 'a/b',
    max_tokens: 9,
    tools: [search, { name: 'find', input_schema: { type: 'object' } }, tool],
    messages: [
      { role: 'user', content: 'Hi' },
      {
        role: 'assistant',
        content: [
          { type: 'server_tool_use', id: 's', name: 'tool_search_tool_regex', input: {} },
          {
            type: 'tool_search_tool_result',
            tool_use_id: 's',
            content: { type: 'tool_search_tool_search_result', tool_references: [found] },
          },
          { type: 'tool_use', id: 'a', name: 'find', input: {} },
        ],
      },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: 'a', content: [found] }] },
    ],
  }

  it.each(['chat', 'responses', 'gemini'] as const)('are sent in full to a %s vendor and named', (dialect) => {
    const { body: sent, ignored } = translate(messagesClient, body, dialect)

    const text = JSON.stringify(sent)
    expect(text).toContain('"Gets."')
    expect(text).not.toMatch(/defer_loading|tool_search|tool_reference/)
    expect(text).toContain('Tool found: g')
    expect(ignored).toEqual(expect.arrayContaining(['tools[].defer_loading', 'tools[0]']))
    expect(faultsOf(dialect, sent)).toEqual([])
  })

  it('are named if they come from the responses format', () => {
    const { ignored, body: sent } = translate(responsesClient, asResponses([]), 'messages')

    expect(ignored).toEqual(expect.arrayContaining(['tools[].defer_loading', 'tools (tool_search)']))
    expect(objectsIn(sent['tools']).map(({ name }) => name)).toEqual(['f', 'c'])
  })
})

describe('a result whose call is dropped', () => {
  it.each(['chat', 'messages', 'gemini'] as const)('is dropped and named for a %s vendor', (dialect) => {
    const input = [
      { role: 'user', content: 'Hi' },
      { type: 'tool_search_call', call_id: 'ts', execution: 'client', arguments: {} },
      { type: 'function_call_output', call_id: 'ts', output: 'done' },
      { role: 'user', content: 'Go on.' },
    ]
    const { ignored, body } = translate(responsesClient, { model: 'a/b', input }, dialect)

    expect(JSON.stringify(body)).not.toContain('"ts"')
    expect(ignored).toEqual(expect.arrayContaining(['input (tool_search_call)', 'input (function_call_output)']))
  })
})
