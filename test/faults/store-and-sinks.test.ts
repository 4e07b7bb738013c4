import { afterEach, describe, expect, it } from 'vitest'
import type { Store } from '../../src/core/store.ts'
import { memoryStore } from '../../src/index.ts'
import { sendRequest, expectErrorResponse, ENDPOINTS } from '../support/send-request.ts'
import { startStage, type Stage, type StageOptions } from '../support/stage.ts'

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
})

async function startOne(options: StageOptions): Promise<Stage> {
  const stage = await startStage(options)
  stages.push(stage)
  return stage
}

describe('a request log', () => {
  it.each<[string, () => unknown]>([
    [
      'throws',
      () => {
        throw new Error('no space left')
      },
    ],
    ['rejects', () => Promise.reject(new Error('no space left'))],
    ['never resolves', () => new Promise(() => {})],
  ])('that %s does not delay requests', async (_, log) => {
    const stage = await startOne({ log: log as (record: unknown) => void })
    for (const { path, body } of ENDPOINTS) {
      for (const stream of [false, true]) {
        const reply = await sendRequest(stage, { ...body, stream }, { path })
        expect(reply.status).toBe(200)
        expect(reply.text).toContain('upstream.')
      }
      expect((await sendRequest(stage, 'no JSON', { path })).status).toBe(400)
    }
  })
})

describe('a store', () => {
  type Method = 'get' | 'reserve' | 'settle' | 'append' | 'levels'

  async function broken(
    methods: readonly Method[],
    failing: () => Promise<never>,
  ): Promise<Stage & { readonly mend: () => void }> {
    const store: Store = memoryStore()
    let away = false
    // Calls of a remote store have a timeout; calls of a local one cannot hang.
    const wrapped: Store = { ...store, local: false }
    for (const method of methods) {
      const original = store[method] as (...given: unknown[]) => Promise<unknown>
      Object.assign(wrapped, { [method]: (...given: unknown[]) => (away ? failing() : original(...given)) })
    }
    const stage = await startOne({
      store: wrapped,
      key: { name: 'x', rate_limit_requests: 1000, budget_limit_cents: 1000 },
    })
    away = true
    return { ...stage, mend: () => (away = false) }
  }

  it.each<[string, () => Promise<never>]>([
    ['refuses', () => Promise.reject(new Error('ECONNREFUSED redis://secret-host:6379'))],
    ['hangs', () => new Promise(() => {})],
  ])('that %s during a reservation causes 503, and is called again by the next request', async (_, failing) => {
    const stage = await broken(['get', 'reserve', 'levels'], failing)
    const replies = await Promise.all(ENDPOINTS.map(({ path, body }) => sendRequest(stage, body, { path })))
    for (const reply of replies) {
      expectErrorResponse(reply, { status: 503, type: 'overloaded_error' })
      expect(reply.text).not.toMatch(/redis|secret-host|ECONN/)
    }
    expect(stage.upstream.requests).toHaveLength(0)
    stage.mend()
    expect((await sendRequest(stage, ENDPOINTS[0]?.body)).status).toBe(200)
  })

  it.each<[string, () => Promise<never>]>([
    ['refuses', () => Promise.reject(new Error('ECONNREFUSED'))],
    ['hangs', () => new Promise(() => {})],
  ])('that %s during the settlement does not prevent the answer', async (_, failing) => {
    const stage = await broken(['settle', 'append'], failing)
    const asked = ENDPOINTS.flatMap(({ path, body }) =>
      [false, true].map((stream) => sendRequest(stage, { ...body, stream }, { path })),
    )
    for (const reply of await Promise.all(asked)) {
      expect(reply.status).toBe(200)
      expect(reply.text).toContain('upstream.')
    }
    stage.mend()
    expect((await sendRequest(stage, ENDPOINTS[0]?.body)).status).toBe(200)
  })

  it.each(['', '{', 'null', '[]', '{}', '{"id":5}', '"key"'])('with a key record of %j causes 503', async (record) => {
    const store = memoryStore()
    const first = await startOne({ store })
    await store.set(`key:${first.keyId}`, record)
    const other = await startOne({ store })

    for (const { path, body } of ENDPOINTS) {
      const reply = await sendRequest(other, body, { path, secret: first.secret })
      expectErrorResponse(reply, { status: 503, type: 'overloaded_error' })
    }
    expect(other.upstream.requests).toHaveLength(0)
    expect((await sendRequest(other, ENDPOINTS[0]?.body)).status).toBe(200)
  })
})
