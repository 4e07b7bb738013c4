import { afterEach, expect, it } from 'vitest'
import { CHAT, sendRequest } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { buildEvents } from '../support/upstream.ts'

let stage: Stage | undefined
afterEach(async () => {
  await stage?.close()
})

it('a stream without a finish reason, whose last part may be missing, is not repeated for its Idempotency-Key', async () => {
  stage = await startStage({
    cache: {},
    reply: (request) => ({
      kind: 'events',
      items: buildEvents(request, { text: 'Half of an' }).filter(({ data }) => !data.includes('"stop"')),
    }),
  })
  const body = { ...CHAT.body, stream: true }
  const options = { headers: { 'idempotency-key': 'once' } }
  const first = await sendRequest(stage, body, options)
  const second = await sendRequest(stage, body, options)

  expect(first.text).toContain('Half')
  expect([second.headers['idempotency-replayed'], second.headers['x-svc-cache']]).toEqual([undefined, 'MISS'])
  expect(stage.upstream.requests).toHaveLength(2)
})
