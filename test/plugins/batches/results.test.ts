import { afterEach, expect, it } from 'vitest'
import type { HttpRequest, ResponseSink } from '../../../src/core/http.ts'
import { waitForBatch } from '../../support/batches.ts'
import { MESSAGE } from '../../support/send-request.ts'
import { startStage, type Stage } from '../../support/stage.ts'

let stage: Stage | undefined
afterEach(() => stage?.close())

it('disconnects a client that reads no batch results for timeouts.totalMs', async () => {
  const running = (stage = await startStage({ timeouts: { totalMs: 2000 } }))
  const params = { model: MESSAGE.model, max_tokens: 20, messages: [{ role: 'user' as const, content: 'Hello?' }] }
  const requests = ['one', 'two'].map((custom_id) => ({ custom_id, params }))
  const { id } = await running.anthropic.messages.batches.create({ requests })
  await waitForBatch(running.anthropic, id)

  const request: HttpRequest = {
    method: 'GET',
    path: `/v1/messages/batches/${id}/results`,
    query: '',
    origin: 'http://gateway.test',
    header: (name) => (name === 'x-api-key' ? running.secret : undefined),
    headerNames: () => ['x-api-key'],
    body: () => new Uint8Array(0),
    onDisconnect: () => {},
  }
  const calls: string[] = []
  await new Promise<void>((resolve) => {
    const sink: ResponseSink = {
      send: (status) => void calls.push(`whole ${status}`),
      begin: (status) => void calls.push(`begin ${status}`),
      write: () => calls.push('write') === 0,
      onDrain: () => {},
      end: () => void calls.push('end'),
      destroy: () => {
        calls.push('destroy')
        resolve()
      },
    }
    running.gateway.handle(request, sink)
  })
  expect(calls).toEqual(['begin 200', 'write', 'destroy'])
})
