import { afterEach, describe, expect, it } from 'vitest'
import type { Json, JsonObject } from '../../src/core/json.ts'
import { openaiCompatible } from '../../src/index.ts'
import { PRICE, startStage, type Stage } from '../support/stage.ts'
import { startUpstream, type UpstreamRequest } from '../support/upstream.ts'

const closing: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
})

const OUTPUT: readonly JsonObject[] = [
  { id: 'rs_a', type: 'reasoning', summary: [], encrypted_content: null },
  { id: 'fc_a', type: 'function_call', call_id: 'call_a', name: 'look', arguments: '{}', status: 'completed' },
  { id: 'ig_a', type: 'image_generation_call', status: 'completed', result: null },
  { id: 'mcpr_a', type: 'mcp_approval_request', name: 'run', arguments: '{}', server_label: 's' },
]
const RESPONSE: JsonObject = {
  id: 'resp_a',
  object: 'response',
  created_at: 1_760_000_000,
  status: 'completed',
  model: 'gpt-x',
  output: [...OUTPUT],
  usage: { input_tokens: 10, output_tokens: 5, total_tokens: 15 },
}
const QUESTION = { role: 'user', content: 'Name a river.' }
const RESULT = { type: 'function_call_output', call_id: 'call_a', output: 'The Rhine.' }
const withoutId = ({ id: _id, ...item }: JsonObject): JsonObject => item

interface Setup {
  readonly requests: readonly UpstreamRequest[]
  readonly create: (
    input: readonly Json[],
    options?: { readonly secret?: string; readonly more?: JsonObject },
  ) => Promise<Response>
  readonly otherSecret: string
  readonly stage: Stage
}

/** Starts a gateway with one vendor account and two keys. The first key has received the response of the vendor. */
async function start(more: JsonObject = {}): Promise<Setup> {
  const vendor = await startUpstream({ reply: () => ({ kind: 'json', value: RESPONSE }) })
  closing.push(vendor.close)
  const models = [{ id: 'gpt-x', price: PRICE, contextWindowTokens: 100_000, maxOutputTokens: 1000 }]
  const settings = { baseUrl: vendor.baseUrl, apiKey: 'sk-vendor', models, responses: true }
  const stage = await startStage({
    providers: [openaiCompatible({ name: 'native', ...settings }), openaiCompatible({ name: 'second', ...settings })],
  })
  closing.push(() => stage.close())
  const { value: otherSecret } = await stage.gateway.keys.create({ name: 'other' })
  const create: Setup['create'] = (input, options = {}) =>
    fetch(`${stage.url}/v1/responses`, {
      method: 'POST',
      headers: { authorization: `Bearer ${options.secret ?? stage.secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'native/gpt-x', input, ...options.more }),
    })
  expect((await create([QUESTION], { more })).status).toBe(200)
  return { requests: vendor.requests, create, otherSecret, stage }
}

const inputOf = (request: UpstreamRequest | undefined): Json | undefined => request?.body['input']

describe('the id of an item that has a type', () => {
  it('reaches the vendor as received for the key that received the item', async () => {
    const { requests, create } = await start()
    const input = [QUESTION, ...OUTPUT, RESULT]

    const responded = await create(input)

    expect(responded.status).toBe(200)
    expect(inputOf(requests[1])).toEqual(input)
  })

  const items: readonly (readonly [string, JsonObject])[] = [
    ['a message', { type: 'message', id: 'msg_a', role: 'assistant', content: [{ type: 'output_text', text: 'Hi.' }] }],
    ['a message without a type', { id: 'msg_a', role: 'assistant', content: 'Hi.' }],
    ['a message of a user', { type: 'message', id: 'msg_a', role: 'user', content: 'Hi.' }],
    ['a function call', { type: 'function_call', id: 'fc_a', call_id: 'c', name: 'look', arguments: '{}' }],
    ['a function output', { ...RESULT, id: 'fco_a' }],
    ['a custom call', { type: 'custom_tool_call', id: 'ctc_a', call_id: 'c', name: 'sh', input: 'ls' }],
    ['encrypted reasoning', { type: 'reasoning', id: 'rs_a', summary: [], encrypted_content: 'c2VhbGVk' }],
    ['reasoning with a summary', { type: 'reasoning', id: 'rs_a', summary: [{ type: 'summary_text', text: 'Hm.' }] }],
    ['a compaction', { type: 'compaction', id: 'cmp_a', encrypted_content: 'c2VhbGVk' }],
    ['an image', { type: 'image_generation_call', id: 'ig_a', status: 'completed', result: 'aW1n' }],
    ['a code interpreter call', { type: 'code_interpreter_call', id: 'ci_a', container_id: 'cntr_1', code: '1' }],
    ['a file search', { type: 'file_search_call', id: 'fs_a', queries: ['river'], results: null }],
    ['a web search', { type: 'web_search_call', id: 'ws_a', action: { type: 'search', query: 'river' } }],
    ['a computer call', { type: 'computer_call', id: 'cu_a', call_id: 'c', action: { type: 'wait' } }],
    ['a list of tools', { type: 'mcp_list_tools', id: 'mcpl_a', server_label: 's', tools: [{ name: 'run' }] }],
    ['an item of a later version', { type: 'x_later_item', id: 'x_1', text: 'Hi.' }],
    ['an item whose id has another form', { type: 'message', id: '../x y', role: 'assistant', content: 'Hi.' }],
    ['an item whose id is not a text', { type: 'message', id: 7, role: 'assistant', content: 'Hi.' }],
  ]
  it.each(items)('does not reach the vendor for another key: %s', async (_name, item) => {
    const { requests, create, otherSecret } = await start()

    const responded = await create([QUESTION, item, QUESTION], { secret: otherSecret })

    expect(responded.status).toBe(200)
    expect(inputOf(requests[1])).toEqual([QUESTION, withoutId(item), QUESTION])
  })

  it.each([
    ['an image without a result', { type: 'image_generation_call', id: 'ig_a', status: 'completed', result: null }],
    ['a compaction without content', { type: 'compaction', id: 'cmp_a' }],
    ['an item of a later version', { type: 'x_later_item', id: 'x_1', parts: [] }],
  ])('is refused for another key if the item has no content: %s', async (_name, item) => {
    const { requests, create, otherSecret } = await start()

    const responded = await create([QUESTION, item], { secret: otherSecret })

    expect(responded.status).toBe(400)
    expect(await responded.json()).toMatchObject({ error: { param: 'input[1]' } })
    expect(requests).toHaveLength(1)
  })

  it.each([
    { type: 'reasoning', id: 'rs_a', summary: [] },
    { type: 'reasoning', id: 'rs_a', summary: [], content: [], encrypted_content: null, status: 'completed' },
    { type: 'web_search_call', id: 'ws_a', status: 'completed' },
  ])('is dropped together with reasoning or a search that has no content: %o', async (item) => {
    const { requests, create, otherSecret } = await start()

    const responded = await create([QUESTION, item, QUESTION], { secret: otherSecret })

    expect(responded.status).toBe(200)
    expect(inputOf(requests[1])).toEqual([QUESTION, QUESTION])
  })

  it('is left out for the whole answer if the vendor did not store it', async () => {
    const { requests, create } = await start({ store: false })
    const reasoning: JsonObject = { type: 'reasoning', id: 'rs_a', summary: [], encrypted_content: 'c2VhbGVk' }
    const call: JsonObject = { type: 'function_call', id: 'fc_a', call_id: 'call_a', name: 'look', arguments: '{}' }
    const turn = [QUESTION, reasoning, call, RESULT]

    await create(turn, { more: { store: false } })
    await create([...turn, QUESTION], { more: { store: false } })

    const sent = [QUESTION, withoutId(reasoning), withoutId(call), RESULT]
    expect(inputOf(requests[1])).toEqual(sent)
    expect(inputOf(requests[2])).toEqual([...sent, QUESTION])
  })

  it('does not bind the request to the provider that stores the item', async () => {
    const { requests, create } = await start()

    const responded = await create([QUESTION, OUTPUT[1] ?? {}, RESULT], { more: { model: 'second/gpt-x' } })

    expect(responded.status).toBe(200)
    expect(requests).toHaveLength(2)
  })

  it('is checked in an input with more than 1,000 items', async () => {
    const { requests, create } = await start()
    const item = (id: string): JsonObject => ({ type: 'message', id, role: 'assistant', content: 'Hi.' })
    const many = Array.from({ length: 1500 }, (_, index) => item(`msg_${index}`))

    const responded = await create([...many, OUTPUT[1] ?? {}, RESULT])

    expect(responded.status).toBe(200)
    expect(inputOf(requests[1])).toEqual([...many.map(withoutId), OUTPUT[1], RESULT])
  })

  it('is refused if an approval names a request that the key did not receive', async () => {
    const { requests, create, otherSecret } = await start()
    const approval = { type: 'mcp_approval_response', approval_request_id: 'mcpr_a', approve: true }

    const refused = await create([approval], { secret: otherSecret })
    const accepted = await create([OUTPUT[3] ?? {}, approval])

    expect([refused.status, accepted.status]).toEqual([400, 200])
    expect(inputOf(requests[1])).toEqual([OUTPUT[3], approval])
  })

  it('is replaced if an approval in the same input names it', async () => {
    const { requests, create, otherSecret } = await start()
    const approval: JsonObject = { type: 'mcp_approval_response', approval_request_id: 'mcpr_a', approve: true }

    const responded = await create([QUESTION, OUTPUT[3] ?? {}, approval], { secret: otherSecret })

    expect(responded.status).toBe(200)
    expect(inputOf(requests[1])).toEqual([
      QUESTION,
      { ...OUTPUT[3], id: 'mcpr_input1' },
      { ...approval, approval_request_id: 'mcpr_input1' },
    ])
  })
})
