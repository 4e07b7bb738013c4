import { setImmediate as nextTurn } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { CHAT } from '../support/send-request.ts'
import { startStage } from '../support/stage.ts'
import { post, getReader } from '../support/read-stream.ts'
import { gate, HANG } from '../support/upstream.ts'
import { recordingStore } from '../support/recording-store.ts'

it('a closed gateway does not retry', async () => {
  const stage = await startStage({ reply: () => ({ kind: 'hang' }) })
  const response = post(stage, CHAT.path, { body: CHAT.body })
  await stage.upstream.waitForRequest(1)
  await stage.gateway.close()

  expect((await response).status).toBeGreaterThanOrEqual(500)
  expect(stage.upstream.requests).toHaveLength(1)
  await stage.close()
})

it('a gateway closes its store after pending settlements', async () => {
  const store = recordingStore()
  const order: string[] = []
  const [asked, responded] = [gate(), gate()]
  const slow = {
    ...store,
    settle: async (settlement: Parameters<typeof store.settle>[0]) => {
      asked.open()
      await responded.opened
      order.push('settled')
      return store.settle(settlement)
    },
    close: async () => {
      order.push('closed')
      return store.close()
    },
  }
  const chunk = { choices: [{ index: 0, delta: { content: 'One' }, finish_reason: null }] }
  const stage = await startStage({
    store: slow,
    key: { name: 'k', budget_limit_cents: 100 },
    reply: () => ({ kind: 'events', items: [{ data: JSON.stringify(chunk) }, HANG] }),
  })
  const reader = getReader(await post(stage, CHAT.path, { body: { ...CHAT.body, stream: true } }))
  await reader.read()
  await reader.cancel()
  await asked.opened
  const closed = stage.gateway.close()
  for (let turn = 0; turn < 50; turn += 1) await nextTurn()
  responded.open()
  await closed

  expect(order).toEqual(['settled', 'closed'])
  await stage.close()
})
