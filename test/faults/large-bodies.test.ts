import { afterEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { sendRequest, CHAT, MESSAGE, type SendOptions, type Endpoint } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { gate, HANG } from '../support/upstream.ts'

const closing: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
})

const MIB = 1024 * 1024
/** Base64 of 2 MiB: with a capacity of 3 MiB, a second one waits. */
const IMAGE = 'iVBORw0K'.repeat((2 * MIB) / 8)

const withImage = (text: string): readonly JsonObject[] => [
  { type: 'text', text },
  { type: 'image_url', image_url: { url: `data:image/png;base64,${IMAGE}` } },
]

const createLargeBody = (text: string, more: JsonObject = {}): JsonObject => ({
  ...CHAT.body,
  messages: [{ role: 'user', content: [...withImage(text)] }],
  ...more,
})

async function start(options: Parameters<typeof startStage>[0] = {}): Promise<Stage> {
  const stage = await startStage({ limits: { bodyBytesPerKey: 3 * MIB, bodyReadMs: 5000 }, ...options })
  closing.push(() => stage.close())
  return stage
}

describe('a key with large bodies', () => {
  it('is rejected with 429 when its bodies wait too long, while other keys and small requests are answered', async () => {
    const release = gate()
    const stage = await start({
      limits: { bodyBytesPerKey: 3 * MIB, bodyReadMs: 500 },
      reply: async ({ text }) => {
        if (text.includes('hang')) await release.opened
        return 'Here you are.'
      },
    })
    const first = sendRequest(stage, createLargeBody('please hang'))
    await stage.upstream.waitForRequest(1)
    const other = await stage.gateway.keys.create({ name: 'other' })
    const refused = await sendRequest(stage, createLargeBody('a second one'))
    expect(refused.status).toBe(429)
    expect(refused.headers['retry-after']).toBe('5')
    expect(refused.error['message']).toContain('Too many large requests')
    expect((await sendRequest(stage, CHAT.body)).status).toBe(200)
    expect((await sendRequest(stage, createLargeBody('from another key'), { secret: other.value })).status).toBe(200)
    release.open()
    expect((await first).status).toBe(200)
    expect((await sendRequest(stage, createLargeBody('again'))).status).toBe(200)
  })

  it('that arrive in chunks and turn out to be small do not wait for each other', async () => {
    const release = gate()
    const stage = await start({
      limits: { bodyBytesPerKey: 3 * MIB, bodyReadMs: 1000 },
      reply: async ({ text }) => {
        if (text.includes('hang')) await release.opened
        return 'Here you are.'
      },
    })
    const inChunks = { headers: { 'transfer-encoding': 'chunked' } }
    const hanging = { ...CHAT.body, messages: [{ role: 'user', content: 'please hang' }] }
    const first = sendRequest(stage, hanging, inChunks)
    await stage.upstream.waitForRequest(1)
    const second = await sendRequest(stage, CHAT.body, inChunks)
    release.open()

    expect([second.status, (await first).status]).toEqual([200, 200])
  })

  const anthropicImage = { type: 'image', source: { type: 'base64', media_type: 'image/png', data: IMAGE } }
  const message = { ...MESSAGE.body, messages: [{ role: 'user', content: [anthropicImage] }] }
  const batched = (body: JsonObject): JsonObject => ({ requests: [{ custom_id: 'one', params: body }] })
  const ways: readonly [name: string, body: JsonObject, options: SendOptions, statuses: readonly number[]][] = [
    ['answers', createLargeBody('one'), {}, [200]],
    ['streams', createLargeBody('one', { stream: true }), {}, [200]],
    ['upstream failures', createLargeBody('please fail'), {}, [502, 503]],
    ['unknown models', createLargeBody('one', { model: 'none/such' }), {}, [404]],
    ['broken bodies', createLargeBody('one', { messages: 7 }), {}, [400]],
    ['explanations', createLargeBody('one'), { headers: { 'x-svc-explain': 'true' } }, [200]],
    ['repetitions', createLargeBody('one'), { headers: { 'idempotency-key': 'one' } }, [200]],
    ['chunked bodies', createLargeBody('one'), { headers: { 'transfer-encoding': 'chunked' } }, [200]],
    ['counts', message, { path: '/v1/messages/count_tokens' }, [200]],
    ['messages', message, { path: '/v1/messages' }, [200]],
    ['batches', batched(message), { path: '/v1/messages/batches' }, [200]],
    ['refused embeddings', { model: 'chat/embed', input: 'word '.repeat(300_000) }, { path: '/v1/embeddings' }, [400]],
  ]

  it.each(ways)('has its full capacity again after %s', async (_, body, options, statuses) => {
    const stage = await start({
      cache: {},
      reply: ({ text }) => (text.includes('please fail') ? { kind: 'failure', status: 500 } : 'Here you are.'),
    })
    for (let count = 0; count < 3; count++) expect(statuses).toContain((await sendRequest(stage, body, options)).status)
    expect((await sendRequest(stage, createLargeBody('at the end'))).status).toBe(200)
  })

  it.each<[string, Endpoint]>([
    ['before its answer', CHAT],
    ['within its stream', { ...CHAT, body: { ...CHAT.body, stream: true } }],
  ])('has its full capacity again when the caller disconnects %s', async (_, endpoint) => {
    const stage = await start({
      reply: ({ text }) => (text.includes('hang') ? { kind: 'events', items: [HANG] } : 'Yes.'),
    })
    for (let count = 0; count < 3; count++) {
      const leaving = new AbortController()
      const left = sendRequest(
        stage,
        { ...createLargeBody('please hang'), ...(endpoint.body['stream'] === true && { stream: true }) },
        { signal: leaving.signal },
      )
      const seen = await stage.upstream.waitForRequest(count + 1)
      leaving.abort()
      await expect(left).rejects.toThrow()
      await seen.aborted
    }
    expect((await sendRequest(stage, createLargeBody('at the end'))).status).toBe(200)
  })
})
