import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { chatUpstream } from '../../src/formats/chat/upstream.ts'
import { responsesUpstream } from '../../src/formats/responses/upstream.ts'
import { sendRequest, FORMAT_PAIRS, RESPONSES_FORMAT_PAIRS } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { buildEvents, buildBody, type ModelResponse } from '../support/upstream-responses.ts'
import type { Reply, UpstreamRequest } from '../support/upstream.ts'

const CALLS = [
  { name: 'weather', input: '{"city":"Bern"}' },
  { name: 'weather', input: '{"city":"Rome"}' },
]

/** Returns the ids of the tool calls in a whole or streamed response, in order. */
function idsIn(text: string): readonly string[] {
  const found: string[] = []
  const visit = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return
    const item = value as JsonObject
    const isCall = item['type'] === 'function' || item['type'] === 'tool_use' || item['type'] === 'function_call'
    if (isCall) found.push(String(item['type'] === 'function_call' ? item['call_id'] : item['id']))
    for (const inner of Object.values(value)) visit(inner)
  }
  const events = text.split('\n').flatMap((line) => (line.startsWith('data: {') ? [line.slice(6)] : []))
  for (const json of events.length > 0 ? events : [text]) visit(JSON.parse(json))
  return [...new Set(found)]
}

/** Builds a reply whose JSON text is changed before it is sent. */
function buildChangedReply(response: ModelResponse, request: UpstreamRequest, change: (text: string) => string): Reply {
  if (!request.stream) return { kind: 'body', body: change(JSON.stringify(buildBody(request, response))) }
  const items = buildEvents(request, response).map((event) => ({ ...event, data: change(event.data) }))
  return { kind: 'events', items }
}

describe('a tool call that its upstream sends without an id', () => {
  let stage: Stage
  beforeAll(async () => {
    stage = await startStage()
  })
  afterAll(() => stage.close())

  describe.each([
    ['an empty id', ''],
    ['no id', undefined],
  ])('%s', (_, id) => {
    it.each([...FORMAT_PAIRS, ...RESPONSES_FORMAT_PAIRS])(
      'receives a new id, whole and streamed: $name',
      async (endpoint) => {
        const { path, body } = endpoint
        // The fake upstream adds missing call ids, so the test removes them from its replies.
        const remove = (text: string): string =>
          text.replace(/"id":"remove_\d"(,?)/g, id === undefined ? '' : '"id":""$1')
        stage.upstream.reply = (request) => {
          const toolCalls = CALLS.map((call, index) => ({ ...call, id: `remove_${index}` }))
          return buildChangedReply({ toolCalls }, request, remove)
        }
        const responses = await Promise.all(
          [false, true, false, true].map((stream) => sendRequest(stage, { ...body, stream }, { path })),
        )

        const ids = responses.map((response) => idsIn(response.text))
        expect(responses.map((response) => response.status)).toEqual([200, 200, 200, 200])
        for (const pair of ids) expect(pair).toHaveLength(2)
        for (const one of ids.flat()) expect(one).toMatch(/^(call|toolu)_[0-9a-f]{24}$/)
        expect(new Set(ids.flat()).size).toBe(8)
      },
    )
  })
})

describe('a response of an upstream of the responses format', () => {
  const call = (fields: JsonObject): JsonObject => ({
    type: 'function_call',
    name: 'weather',
    arguments: '{}',
    ...fields,
  })

  it('shows a call without call_id under one id in all its events', () => {
    const read = responsesUpstream.createReader()
    const events = [
      { type: 'response.created', response: { id: 'resp_1', model: 'm', output: [] } },
      { type: 'response.output_item.added', output_index: 0, item: call({ call_id: '' }) },
      { type: 'response.output_item.done', output_index: 0, item: call({ call_id: '' }) },
      { type: 'response.completed', response: { id: 'resp_1', status: 'completed', output: [call({ call_id: '' })] } },
    ]
    const chunks = events.map((event) => read({ data: JSON.stringify(event) }))

    const [id, ...others] = idsIn(chunks.map((chunk) => `data: ${chunk.native?.event.data}`).join('\n'))
    expect(others).toEqual([])
    expect(id).toMatch(/^call_[0-9a-f]{24}$/)
    expect(chunks[1]?.parts).toEqual([{ type: 'tool-call-start', index: 0, id, name: 'weather' }])
  })

  it('uses the item id as call_id, or a new one, in a whole answer', () => {
    const { parts, native } = responsesUpstream.readCompletion({ output: [call({}), call({ id: 'fc_1' })] })
    const ids = parts.map((part) => (part.type === 'tool-call' ? part.id : undefined))

    expect(ids).toEqual([expect.stringMatching(/^call_[0-9a-f]{24}$/), 'fc_1'])
    expect(idsIn(JSON.stringify(native?.value))).toEqual(ids)
  })
})

describe('a chat stream', () => {
  it('keeps the first id of a call whose id arrives later, and forwards pieces without an id unchanged', () => {
    const read = chatUpstream.createReader()
    const chunk = (call: JsonObject): string =>
      JSON.stringify({ id: 'x', choices: [{ index: 0, delta: { tool_calls: [call] } }] })
    const texts = [
      chunk({ index: 0, type: 'function', function: { name: 'f', arguments: '' } }),
      chunk({ index: 0, id: 'late', function: { arguments: '{}' } }),
      chunk({ index: 1, id: 'own', type: 'function', function: { name: 'g', arguments: '' } }),
      chunk({ index: 1, id: '', function: { arguments: '{}' } }),
    ]
    const sent = texts.map((data) => read({ data }).native?.event.data ?? '')

    expect(idsIn(`data: ${sent[0]}`)).toEqual([expect.stringMatching(/^call_[0-9a-f]{24}$/)])
    expect(sent[1]).not.toContain('late')
    expect(sent.slice(2)).toEqual(texts.slice(2))
  })
})
