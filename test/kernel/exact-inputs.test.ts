import { afterEach, expect, it } from 'vitest'
import { waitForBatch } from '../support/batches.ts'
import { CHAT_MODEL, MESSAGE_MODEL, startStage, type Stage } from '../support/stage.ts'

const NUMBERS = '{"order":12345678901234567890,"price":1.0}'
const BODY =
  `{"model":"${CHAT_MODEL}","max_tokens":20,"messages":[{"role":"user","content":"Hello?"},` +
  `{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":${NUMBERS}}]},` +
  '{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"Done."}]}]}'

let stage: Stage | undefined
afterEach(() => stage?.close())

function send({ url, secret }: Stage, path: string, body: string): Promise<Response> {
  const headers = { authorization: `Bearer ${secret}`, 'content-type': 'application/json' }
  return fetch(url + path, { method: 'POST', headers, body })
}

it('a request in the messages format keeps the numbers of its calls at a chat vendor', async () => {
  const running = (stage = await startStage())

  const response = await send(running, '/v1/messages', BODY)

  expect(response.status).toBe(200)
  expect(running.upstream.last.text).toContain(`"arguments":${JSON.stringify(NUMBERS)}`)
})

it('a batch in the messages format keeps the numbers of its calls at a chat vendor', async () => {
  const running = (stage = await startStage())

  const response = await send(running, '/v1/messages/batches', `{"requests":[{"custom_id":"a","params":${BODY}}]}`)
  const { id } = (await response.json()) as { id: string }
  await waitForBatch(running.anthropic, id)

  expect(running.upstream.last.text).toContain(`"arguments":${JSON.stringify(NUMBERS)}`)
})

it('a call of a messages vendor keeps its numbers for a chat client', async () => {
  const body =
    `{"id":"msg_1","type":"message","role":"assistant","model":"large","content":[{"type":"tool_use","id":"c","name":"f",` +
    `"input":${NUMBERS}}],"stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":1,"output_tokens":2}}`
  const running = (stage = await startStage({
    reply: () => ({ kind: 'body', body, headers: { 'content-type': 'application/json' } }),
  }))

  const request = { model: MESSAGE_MODEL, max_tokens: 20, messages: [{ role: 'user', content: 'Hello?' }] }
  const response = await send(running, '/v1/chat/completions', JSON.stringify(request))
  const completion: unknown = await response.json()

  expect(completion).toMatchObject({ choices: [{ message: { tool_calls: [{ function: { arguments: NUMBERS } }] } }] })
})
