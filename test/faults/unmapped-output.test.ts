import { afterEach, describe, expect, it } from 'vitest'
import type { SseEvent } from '../../src/core/completion.ts'
import type { JsonObject } from '../../src/core/json.ts'
import { anthropic, openaiCompatible } from '../../src/index.ts'
import { sendRequest } from '../support/send-request.ts'
import { PRICE, startStage, type Stage } from '../support/stage.ts'
import { post, getReader } from '../support/read-stream.ts'
import { CUT, HANG, startUpstream, type StreamItem, type Upstream } from '../support/upstream.ts'

/** About 400 tokens. */
const LAST_PIECE = 'finis'
const PIECES = [...Array.from({ length: 60 }, () => 'lorem ipsum dolor sit amet consectetur '), LAST_PIECE]
const MIN_TOKENS = 300

interface VendorStage extends Stage {
  readonly vendor: Upstream
}

const closing: (() => Promise<unknown>)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
})

async function start(items: readonly StreamItem[]): Promise<VendorStage> {
  const vendor = await startUpstream({ reply: () => ({ kind: 'events', items }) })
  closing.push(vendor.close)
  const models = [{ id: 'large', price: PRICE, contextWindowTokens: 100_000, maxOutputTokens: 1000 }]
  const native = openaiCompatible({ name: 'native', baseUrl: vendor.baseUrl, models, responses: true })
  const stage = await startStage({ providers: [native, anthropic({ baseUrl: vendor.url, apiKey: 'x', models })] })
  closing.push(stage.close)
  return Object.assign(stage, { vendor })
}

const event = (type: string, fields: JsonObject): SseEvent => ({
  event: type,
  data: JSON.stringify({ type, sequence_number: 0, ...fields }),
})

const response = { id: 'resp_1', object: 'response', model: 'large', status: 'in_progress', output: [], usage: null }
const itemEvents = (type: string, delta: string): readonly SseEvent[] => [
  event('response.created', { response }),
  event('response.output_item.added', { output_index: 0, item: { type, id: 'item_1', call_id: 'call_1', name: 'f' } }),
  ...PIECES.map((piece) => event(delta, { item_id: 'item_1', output_index: 0, delta: piece })),
]
const completeItem = (item: JsonObject): readonly SseEvent[] => [
  event('response.created', { response }),
  event('response.output_item.done', { output_index: 0, item: { id: 'item_1', call_id: 'call_1', ...item } }),
]
const message = { id: 'msg_1', type: 'message', role: 'assistant', model: 'large', content: [] }
const blockEvents = (block: JsonObject, deltaOf: (piece: string) => JsonObject): readonly SseEvent[] => [
  event('message_start', { message: { ...message, usage: { input_tokens: 10, output_tokens: 1 } } }),
  event('content_block_start', { index: 0, content_block: block }),
  ...PIECES.map((piece) => event('content_block_delta', { index: 0, delta: deltaOf(piece) })),
]

const RESPONSES = { path: '/v1/responses', body: { model: 'native/large', input: 'Hello?', max_output_tokens: 1000 } }
const MESSAGES = {
  path: '/v1/messages',
  body: { model: 'anthropic/large', messages: [{ role: 'user', content: 'Hello?' }], max_tokens: 1000 },
}
const inputDelta = (partial_json: string): JsonObject => ({ type: 'input_json_delta', partial_json })
const serverTool = { type: 'server_tool_use', id: 'srv_1', name: 'code_execution', input: {} }

describe.each([
  {
    name: 'a custom tool call',
    ...RESPONSES,
    events: itemEvents('custom_tool_call', 'response.custom_tool_call_input.delta'),
  },
  { name: 'an MCP call', ...RESPONSES, events: itemEvents('mcp_call', 'response.mcp_call_arguments.delta') },
  {
    name: 'code',
    ...RESPONSES,
    events: itemEvents('code_interpreter_call', 'response.code_interpreter_call_code.delta'),
  },
  {
    name: 'a complete custom tool call',
    ...RESPONSES,
    events: completeItem({ type: 'custom_tool_call', input: PIECES.join('') }),
  },
  {
    name: 'a shell call',
    ...RESPONSES,
    events: completeItem({ type: 'local_shell_call', action: { type: 'exec', command: PIECES } }),
  },
  { name: 'the input of a server tool', ...MESSAGES, events: blockEvents(serverTool, inputDelta) },
  {
    name: 'a compaction',
    ...MESSAGES,
    events: blockEvents({ type: 'compaction', content: '' }, (content) => ({ type: 'compaction_delta', content })),
  },
])('$name', ({ path, body, events }) => {
  const completionTokens = async ({ gateway, keyId }: VendorStage): Promise<number> =>
    (await gateway.keys.usage(keyId)).tokens.completion

  it('is billed if the caller disconnects during it', async () => {
    const stage = await start([...events, HANG])
    const reader = getReader(await post(stage, path, { body: { ...body, stream: true } }))
    for (let text = ''; !text.includes(LAST_PIECE); text += new TextDecoder().decode((await reader.read()).value));
    await reader.cancel()

    await expect.poll(() => completionTokens(stage)).toBeGreaterThan(MIN_TOKENS)
  })

  it('is billed and not requested again if the stream breaks during it', async () => {
    const stage = await start([...events, CUT])
    await sendRequest(stage, { ...body, stream: true }, { path })

    await expect.poll(() => completionTokens(stage)).toBeGreaterThan(MIN_TOKENS)
    expect(stage.vendor.requests).toHaveLength(1)
  })
})
