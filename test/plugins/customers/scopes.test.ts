import { afterEach, describe, expect, it } from 'vitest'
import type { BoundGateway } from '../../../src/gateway.ts'
import { type CallerContext, createGateway, type Gateway, memoryStore } from '../../../src/index.ts'
import type { ProviderCall } from '../../../src/core/ports.ts'
import { EchoProvider } from '../../../src/testing/echo-provider.ts'
import { type Stage, startStage } from '../../support/stage.ts'

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
})

/** Gives each response an id of its own. */
class UniqueProvider extends EchoProvider {
  #count = 0

  override async complete(call: ProviderCall): ReturnType<EchoProvider['complete']> {
    const { response, ignored } = await super.complete(call)
    this.#count += 1
    return { response: { ...response, id: `echo-${this.#count}` }, ignored }
  }
}

interface Caller {
  readonly context?: CallerContext
  readonly key?: string
}

interface Sent {
  readonly body?: object
  readonly headers?: Readonly<Record<string, string>>
}

function bind(gateway: Gateway, { context, key }: Caller) {
  const { fetch }: Pick<BoundGateway, 'fetch'> = context === undefined ? gateway : gateway.with(context)
  return async (method: string, path: string, { body, headers = {} }: Sent = {}) => {
    const response = await fetch(`http://gateway${path}`, {
      method,
      headers: {
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...(key !== undefined && { authorization: `Bearer ${key}` }),
        ...headers,
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
    const text = await response.text()
    return { status: response.status, headers: response.headers, text }
  }
}

type Send = ReturnType<typeof bind>

const idOf = ({ text }: { readonly text: string }): string => String(JSON.parse(text).id)
const MODEL = 'contract/echo'
const messages = [{ role: 'user', content: 'Hello' }]

/** Callers of different scopes. The last two share the scope of an earlier one. */
async function callersOf(gateway: Gateway): Promise<{
  readonly apart: readonly Caller[]
  readonly together: readonly (readonly [Caller, Caller])[]
}> {
  const { value: key } = await gateway.keys.create({ name: 'app' })
  const { value: other } = await gateway.keys.create({ name: 'other' })
  const apart: readonly Caller[] = [
    { key },
    { key: other },
    { key, context: { customer: 'a' } },
    { key, context: { customer: 'b' } },
    { key, context: { user: 'a' } },
    { key, context: { user: 'b' } },
    { key: other, context: { customer: 'a' } },
    { context: { customer: 'a' } },
    { context: { customer: 'b' } },
    { context: { user: 'a' } },
    { context: { user: '~a' } },
    { context: { user: '%7ea' } },
  ]
  const together: readonly (readonly [Caller, Caller])[] = [
    [{ context: { customer: 'a' } }, { context: { customer: 'a', user: 'u', session: 's', tags: { t: 'x' } } }],
    [{ key }, { key, context: { session: 's' } }],
  ]
  return { apart, together }
}

/** Creates something, and returns what sees it. */
type Kind = (send: Send, name: string) => Promise<(other: Send) => Promise<boolean>>

const KINDS: Readonly<Record<string, Kind>> = {
  batch: async (send) => {
    const params = { model: MODEL, max_tokens: 5, messages }
    const id = idOf(await send('POST', '/v1/messages/batches', { body: { requests: [{ custom_id: 'one', params }] } }))
    return async (other) => {
      const listed = (await other('GET', '/v1/messages/batches')).text.includes(id)
      const found = (await other('GET', `/v1/messages/batches/${id}`)).status
      const results = (await other('GET', `/v1/messages/batches/${id}/results`)).status
      const canceled = (await other('POST', `/v1/messages/batches/${id}/cancel`)).status
      expect([found === 200, results !== 404, canceled === 200]).toEqual([listed, listed, listed])
      return listed
    }
  },
  'stored response': async (send) => {
    const body = { model: MODEL, input: 'Hello', max_output_tokens: 20 }
    const id = idOf(await send('POST', '/v1/responses', { body }))
    return async (other) => {
      const next = { ...body, previous_response_id: id }
      return (await other('POST', '/v1/responses', { body: next })).status === 200
    }
  },
  recording: async (send) => {
    const id = idOf(await send('POST', '/v1/messages', { body: { model: MODEL, max_tokens: 20, messages } }))
    return async (other) => (await other('POST', `/v1/messages/${id}/streams`, { body: {} })).status === 200
  },
  'idempotency key': async (send, name) => {
    const sent = { body: { model: MODEL, max_tokens: 20, messages }, headers: { 'idempotency-key': `key-${name}` } }
    const id = idOf(await send('POST', '/v1/chat/completions', sent))
    return async (other) => idOf(await other('POST', '/v1/chat/completions', sent)) === id
  },
  'cached response': async (send, name) => {
    const body = { model: MODEL, max_tokens: 20, messages: [{ role: 'user', content: `What is ${name}?` }] }
    expect((await send('POST', '/v1/chat/completions', { body })).headers.get('x-svc-cache')).toBe('MISS')
    return async (other) => (await other('POST', '/v1/chat/completions', { body })).headers.get('x-svc-cache') === 'HIT'
  },
}

describe.each(Object.entries(KINDS))('a %s', (_kind, create) => {
  it('is visible in its own scope only', async () => {
    const gateway = createGateway({ providers: [new UniqueProvider()], store: memoryStore() })
    const { apart, together } = await callersOf(gateway)
    for (const [at, owner] of apart.entries()) {
      for (const [index, other] of apart.entries()) {
        if (index === at) continue
        const isVisible = await create(bind(gateway, owner), `pair ${at} ${index}`)
        expect(await isVisible(bind(gateway, other)), JSON.stringify([owner, other])).toBe(false)
      }
      const isVisible = await create(bind(gateway, owner), `own ${at}`)
      expect(await isVisible(bind(gateway, owner)), JSON.stringify(owner)).toBe(true)
    }
    for (const [index, [owner, other]] of together.entries()) {
      const isVisible = await create(bind(gateway, owner), `together ${index}`)
      expect(await isVisible(bind(gateway, other)), JSON.stringify([owner, other])).toBe(true)
    }
    await gateway.close()
  }, 60_000)
})

describe('a file', () => {
  it('is visible in its own scope only', async () => {
    const stage = await startStage({ passthrough: { files: { provider: 'chat', free: true } } })
    stages.push(stage)
    const { gateway } = stage
    const { apart } = await callersOf(gateway)
    for (const [at, caller] of apart.entries()) {
      stage.upstream.reply = () => ({ kind: 'json', value: { id: `file-${at}`, object: 'file', purpose: 'x' } })
      const created = await bind(gateway, caller)('POST', '/v1/files', { body: { purpose: 'x' } })
      expect(created.status, created.text).toBe(200)
    }
    for (const [at, caller] of apart.entries()) {
      const send = bind(gateway, caller)
      const { data } = JSON.parse((await send('GET', '/v1/files')).text)
      expect(data.map(({ id }: { id: string }) => id)).toEqual([`file-${at}`])
      for (const [index] of apart.entries()) {
        if (index !== at) expect((await send('DELETE', `/v1/files/file-${index}`)).status).toBe(404)
      }
    }
  })
})

describe('an item of a batch', () => {
  it('runs with the context that created it, and is billed to its customer', async () => {
    const gateway = createGateway({
      providers: [new UniqueProvider()],
      store: memoryStore(),
      margin: 1,
      plans: { two: { rateLimits: [{ requests: 2, window: '1M' }] } },
      customers: { defaultPlan: 'two' },
    })
    const { value: key } = await gateway.keys.create({ name: 'app' })
    const a = bind(gateway, { key, context: { customer: 'a' } })
    const params = { model: MODEL, max_tokens: 5, messages }
    const requests = ['1', '2', '3'].map((id) => ({ custom_id: id, params }))
    const id = idOf(await a('POST', '/v1/messages/batches', { body: { requests } }))
    await gateway.batches.work()
    const ofA = await a('POST', '/v1/messages', { body: params })
    const ofB = await bind(gateway, { key, context: { customer: 'b' } })('POST', '/v1/messages', { body: params })
    expect([ofA.status, ofB.status]).toEqual([429, 200])
    const batch = JSON.parse((await a('GET', `/v1/messages/batches/${id}`)).text)
    expect(batch.request_counts.succeeded).toBeLessThanOrEqual(2)
    await gateway.close()
  })
})
