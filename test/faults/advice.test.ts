import { afterEach, expect, it } from 'vitest'
import { sendRequest, FORMAT_PAIRS } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'

let stage: Stage | undefined
afterEach(() => stage?.close())

it.each(FORMAT_PAIRS)(
  'credentials that an upstream refuses are 502 with x-should-retry: false ($name)',
  async (endpoint) => {
    for (const status of [401, 403]) {
      stage = await startStage({ reply: () => ({ kind: 'failure', status }) })
      const reply = await sendRequest(stage, endpoint.body, { path: endpoint.path })
      expect([reply.status, reply.headers['x-should-retry']]).toEqual([502, 'false'])
      expect(stage.upstream.requests).toHaveLength(1)
      await stage.close()
    }
    stage = undefined
  },
)

it.each(FORMAT_PAIRS)("forwards and follows x-should-retry of an upstream's 5xx response ($name)", async (endpoint) => {
  for (const [advice, tries] of [
    ['false', 1],
    ['true', 3],
  ] as const) {
    stage = await startStage({
      reply: () => ({ kind: 'failure', status: 500, headers: { 'x-should-retry': advice } }),
    })
    const reply = await sendRequest(stage, endpoint.body, { path: endpoint.path })
    expect([reply.status, reply.headers['x-should-retry']]).toEqual([502, advice])
    expect(stage.upstream.requests).toHaveLength(tries)
    await stage.close()
  }
  stage = undefined
})
