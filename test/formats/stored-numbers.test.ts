import { afterEach, describe, expect, it } from 'vitest'
import { waitForBatch } from '../support/batches.ts'
import { openaiCompatible } from '../../src/index.ts'
import { CHAT, MESSAGE } from '../support/send-request.ts'
import { PRICE, startStage, type Stage } from '../support/stage.ts'
import { startUpstream, type Upstream } from '../support/upstream.ts'

const open: { readonly close: () => Promise<void> }[] = []
afterEach(async () => {
  for (const opened of open.splice(0).toReversed()) await opened.close()
})

const NUMBERS = '[12345678901234567890,1e400,1.0,-0]'
const USAGE = { input_tokens: 3, output_tokens: 2, total_tokens: 5 }
const message = { id: 'msg_v1', type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'Yes.' }] }
const response = { id: 'resp_v1', object: 'response', status: 'completed', model: 'x', output: [message], usage: USAGE }

/** A chat vendor, whose conversations the gateway stores, and a vendor of the responses format. */
async function start(): Promise<{ readonly stage: Stage; readonly vendor: Upstream }> {
  const vendor = await startUpstream({
    reply: ({ path }) => (path.endsWith('/responses') ? { kind: 'json', value: response } : 'Yes.'),
  })
  const models = [{ id: 'm', price: PRICE, contextWindowTokens: 100_000, maxOutputTokens: 1000 }]
  const options = { baseUrl: vendor.baseUrl, apiKey: 'sk-upstream-secret', models }
  const stage = await startStage({
    onUntranslatable: 'drop',
    providers: [
      openaiCompatible({ name: 'native', ...options, responses: true }),
      openaiCompatible({ name: 'plain', ...options }),
    ],
  })
  open.push(vendor, stage)
  return { stage, vendor }
}

const post = (stage: Stage, path: string, body: string, headers = {}): Promise<Response> =>
  fetch(`${stage.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${stage.secret}`, 'content-type': 'application/json', ...headers },
    body,
  })

function idOf(text: string): string {
  return /"id":"(resp_[^"]+)"/.exec(text)?.[1] ?? ''
}

describe('numbers that JavaScript cannot represent', () => {
  it.each([false, true])('of a stored conversation are sent again as received (stream: %s)', async (isStream) => {
    const { stage, vendor } = await start()
    const item = (text: string): string => `{"role":"user","content":"${text} é","x":${NUMBERS}}`
    const first = `{"model":"plain/m","stream":${isStream},"input":[${item('One')}]}`
    const stored = idOf(await (await post(stage, '/v1/responses', first)).text())
    const second = `{"model":"plain/m","input":[${item('Two')}],"previous_response_id":"${stored}"}`
    const next = idOf(await (await post(stage, '/v1/responses', second)).text())
    const tools = `[{"type":"function","name":"f","parameters":{"type":"object","x":${NUMBERS}}}]`
    const third = `{"previous_response_id":"${next}","input":[${item('Three')}],"tools":${tools},"model":"native/m"}`
    expect(await (await post(stage, '/v1/responses', third)).text()).toContain('Yes.')

    const { text } = vendor.last
    for (const part of [item('One'), item('Two'), item('Three'), `"tools":${tools}`]) expect(text).toContain(part)
    const sent = JSON.parse(text) as { readonly model: string; readonly input: readonly object[] }
    expect(sent.model).toBe('m')
    expect(sent.input).toHaveLength(5)
    expect(sent).not.toHaveProperty('previous_response_id')
  })

  it('of a stored response and of its input are returned as received', async () => {
    const { stage } = await start()
    const read = (path: string): Promise<string> =>
      fetch(`${stage.url}${path}`, { headers: { authorization: `Bearer ${stage.secret}` } }).then((found) =>
        found.text(),
      )
    const items = ['One', 'Two'].map((content) => `{"role":"user","content":"${content}","x":${NUMBERS}}`)
    const created = await post(stage, '/v1/responses', `{"model":"plain/m","input":[${items.join()}]}`)
    const id = idOf(await created.text())

    expect(JSON.parse(await read(`/v1/responses/${id}`))).toMatchObject({ id, status: 'completed' })
    const list = await read(`/v1/responses/${id}/input_items`)
    expect(list).toBe(`{"object":"list","data":[${items.toReversed().join()}],"has_more":false}`)
  })

  it('of a request of a batch are sent as received', async () => {
    const stage = await startStage()
    open.push(stage)
    const input = `{"type":"tool_use","id":"a","name":"f","input":{"x":${NUMBERS}}}`
    const messages = `[{"role":"user","content":"Hi"},{"role":"assistant","content":[${input}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","content":"1"}]}]`
    const params = `{"model":"${MESSAGE.model}","max_tokens":9,"messages":${messages}}`
    const body = `{"requests":[{"custom_id":"one","params":${params}}]}`
    const created = (await (await post(stage, '/v1/messages/batches', body)).json()) as { readonly id: string }
    await waitForBatch(stage.anthropic, created.id)

    expect(stage.upstream.last.text).toContain(messages)
  })

  it('of the result of a batch item are kept if its JSON has several lines', async () => {
    const text = `{\n"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"Yes."}],\n"stop_reason":"end_turn","x":${NUMBERS},"usage":{"input_tokens":1,"output_tokens":1}}`
    const stage = await startStage({
      reply: () => ({ kind: 'body', body: text, headers: { 'content-type': 'application/json' } }),
    })
    open.push(stage)
    const params = { model: MESSAGE.model, max_tokens: 9, messages: [{ role: 'user' as const, content: 'Hi' }] }
    const { id } = await stage.anthropic.messages.batches.create({ requests: [{ custom_id: 'one', params }] })
    await waitForBatch(stage.anthropic, id)
    const results = await fetch(`${stage.url}/v1/messages/batches/${id}/results`, {
      headers: { 'x-api-key': stage.secret },
    })

    expect(await results.text()).toContain(`"x":${NUMBERS}`)
  })

  it('of a response are kept by a retry with the same Idempotency-Key', async () => {
    const choice = `{"index":0,"message":{"role":"assistant","content":"Yes."},"finish_reason":"stop"}`
    const text = `{"id":"c","object":"chat.completion","model":"m","choices":[${choice}],"x":${NUMBERS},"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`
    const stage = await startStage({
      reply: () => ({ kind: 'body', body: text, headers: { 'content-type': 'application/json' } }),
    })
    open.push(stage)
    const ask = (): Promise<Response> =>
      post(stage, CHAT.path, JSON.stringify(CHAT.body), { 'idempotency-key': 'numbers' })
    await (await ask()).text()

    expect(await (await ask()).text()).toContain(`"x":${NUMBERS}`)
    expect(stage.upstream.requests).toHaveLength(1)
  })
})
