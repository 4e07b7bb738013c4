import { describe, expect, it } from 'vitest'
import type { StreamChunk, ResponseSource, SourceReceiver } from '../../src/core/completion.ts'
import type { Provider } from '../../src/core/ports.ts'
import { createGateway, type Gateway, type GatewayOptions } from '../../src/index.ts'
import { testModel } from '../support/provider-call.ts'
import { post, getReader } from '../support/read-stream.ts'
import { gate } from '../support/upstream.ts'
import { recordingStore, type RecordingStore } from '../support/recording-store.ts'

const never = (): Promise<never> => new Promise(() => {})

interface ProviderSetup {
  readonly gateway: Gateway
  readonly secret: string
  readonly store: RecordingStore
}

async function startWith(
  provider: Partial<Provider>,
  totalMs = 600_000,
  passthrough: GatewayOptions['passthrough'] = {},
): Promise<ProviderSetup> {
  const store = recordingStore()
  const own: Provider = {
    name: 'own',
    dialect: 'chat',
    models: [testModel],
    model: () => testModel,
    complete: never,
    stream: never,
    embed: never,
    ...provider,
  }
  const timeouts = { connectMs: totalMs, firstByteMs: totalMs, idleMs: totalMs, totalMs }
  const runtime = { random: () => 0 }
  const gateway = createGateway({ providers: [own], store, cache: false, timeouts, runtime, passthrough })
  const { value: secret } = await gateway.keys.create({ name: 'k', budget_limit_cents: 1000 })
  return { gateway, secret, store }
}

const CHAT = '/v1/chat/completions'
const MESSAGES = [{ role: 'user', content: 'Hello?' }]
const CALLS = [
  ['a whole answer', CHAT, { model: 'own/model', messages: MESSAGES }],
  ['a stream', CHAT, { model: 'own/model', messages: MESSAGES, stream: true }],
  ['embeddings', '/v1/embeddings', { model: 'own/model', input: 'Hello?' }],
] as const

describe.each(CALLS)('%s of a provider that never answers and ignores its signal', (_, path, body) => {
  it('ends with 504 at the deadline of the request', async () => {
    const setup = await startWith({}, 40)
    expect((await post(setup, path, { body })).status).toBe(504)
    await setup.store.waitUntilSettled()
    expect(await setup.store.maxHeld()).toBe(0)
  })

  it('ends when its caller disconnects', async () => {
    const called = gate()
    const hang = (): Promise<never> => {
      called.open()
      return never()
    }
    const setup = await startWith({ complete: hang, stream: hang, embed: hang })
    const caller = new AbortController()
    const response = post(setup, path, { body, signal: caller.signal })
    await called.opened
    caller.abort()

    expect((await response).status).toBe(499)
    await setup.store.waitUntilSettled()
    expect(await setup.store.maxHeld()).toBe(0)
  })
})

it('aborts a stream that arrives after its caller has disconnected', async () => {
  const called = gate()
  const arrived = gate()
  const ended = gate()
  const chunks: AsyncIterableIterator<StreamChunk> = {
    [Symbol.asyncIterator]: () => chunks,
    next: never,
    return: async () => {
      ended.open()
      return { done: true, value: undefined }
    },
  }
  const setup = await startWith({
    stream: async () => {
      called.open()
      await arrived.opened
      return { response: chunks, ignored: [] }
    },
  })
  const caller = new AbortController()
  const response = post(setup, CHAT, { body: CALLS[1][2], signal: caller.signal })
  await called.opened
  caller.abort()
  await response

  arrived.open()
  await ended.opened
})

describe('a stream that throws when it is aborted', () => {
  const hello: StreamChunk = {
    parts: [
      { type: 'response-start', id: 'a', model: 'model' },
      { type: 'text-start' },
      { type: 'text-delta', text: 'Hello.' },
    ],
  }
  const fault = (): never => {
    throw new TypeError('ended')
  }

  const steps = (): AsyncIterable<StreamChunk> => {
    let isFirst = true
    return {
      [Symbol.asyncIterator]: () => ({
        next: () => {
          if (!isFirst) return never()
          isFirst = false
          return Promise.resolve({ done: false, value: hello })
        },
        return: fault,
      }),
    }
  }
  const source = (): ResponseSource => ({
    read: (receiver: SourceReceiver) => receiver.onChunk(hello),
    pause: () => {},
    resume: () => {},
    complete: () => {},
    abort: fault,
  })

  it.each([
    ['an iterable of steps', steps],
    ['a source', source],
  ])('as %s is settled when its caller disconnects', async (_, create) => {
    const setup = await startWith({ stream: async () => ({ response: create(), ignored: [] }) })
    const response = await post(setup, CHAT, { body: CALLS[1][2] })
    const reader = getReader(response)
    await reader.read()
    await reader.cancel()

    await setup.store.waitUntilSettled()
    expect(await setup.store.maxHeld()).toBe(0)
    expect(setup.store.dailyTotals().completion).toBeGreaterThan(0)
  })
})

describe.each([
  ['as it comes', {}],
  ['when it is whole', { finalPriceUsd: () => 0.01 }],
])('an answer without an end that is forwarded %s', (_, fields) => {
  const images = { provider: 'own', priceUsd: () => 0.01, ...fields }
  const body = { model: 'own/model' }

  /** Sends one byte and ignores signal and timeouts. */
  function endless(called = gate()): Partial<Provider> {
    const read = ({ onBytes }: SourceReceiver): void => {
      onBytes(new Uint8Array([32]))
      called.open()
    }
    const source: ResponseSource = { read, pause() {}, resume() {}, complete() {}, abort() {} }
    return { passThrough: async () => ({ status: 200, header: () => 'application/json', source }) }
  }

  it('ends at the deadline of the request', async () => {
    const setup = await startWith(endless(), 40, { images })
    const response = await post(setup, '/v1/images/generations', { body })
    await response.text().catch(() => 'broken off')

    await setup.store.waitUntilSettled()
    expect(await setup.store.maxHeld()).toBe(0)
  })

  it('ends when its caller disconnects, and is billed', async () => {
    const called = gate()
    const setup = await startWith(endless(called), 600_000, { images })
    const caller = new AbortController()
    const response = post(setup, '/v1/images/generations', { body, signal: caller.signal }).catch(() => 'left')
    await called.opened
    caller.abort()
    await response

    await setup.store.waitUntilSettled()
    expect(await setup.store.maxHeld()).toBe(0)
    const { keys } = await setup.gateway.keys.list()
    expect(keys.map(({ currentUsageCents }) => currentUsageCents)).toEqual([2])
  })
})
