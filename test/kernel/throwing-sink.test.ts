import { afterEach, describe, expect, it } from 'vitest'
import type { HttpRequest, ResponseSink } from '../../src/core/http.ts'
import { createGateway, memoryStore, type Gateway } from '../../src/index.ts'
import { extractive } from '../../src/testing.ts'
import { collectUnhandledRejections } from '../support/unhandled-rejections.ts'

let gateway: Gateway | undefined
afterEach(() => gateway?.close())

interface Sent {
  readonly path: string
  readonly method?: string
  readonly body?: string
  readonly headers?: Readonly<Record<string, string>>
}

const chat = (more: object = {}): string =>
  JSON.stringify({
    model: 'extractive/extractive',
    messages: [{ role: 'user', content: 'Which color has the sky? The sky is blue.' }],
    ...more,
  })
const CHAT = '/v1/chat/completions'

const ADMIN_KEY = 'a'.repeat(32)

type Method = keyof ResponseSink

/** Resolves when the sink has been called after `failing` threw and nothing happened for some turns. */
async function request(
  secret: string,
  { path, method = 'POST', body = '', headers = {} }: Sent,
  failing: readonly Method[],
): Promise<void> {
  let calls = 0
  const call = <Result>(name: Method, result: Result): Result => {
    calls++
    if (failing.includes(name)) throw new Error(`The sink is broken: ${name}`)
    return result
  }
  const all: Readonly<Record<string, string>> = { authorization: `Bearer ${secret}`, ...headers }
  const whole: HttpRequest = {
    method,
    path,
    query: '',
    origin: '',
    header: (name) => all[name],
    headerNames: () => Object.keys(all),
    body: () => new TextEncoder().encode(body),
    onDisconnect: () => {},
  }
  const sink: ResponseSink = {
    send: () => call('send', undefined),
    begin: () => call('begin', undefined),
    write: () => call('write', true),
    onDrain: () => call('onDrain', undefined),
    end: () => call('end', undefined),
    destroy: () => call('destroy', undefined),
  }
  expect(() => gateway?.handle(whole, sink)).not.toThrow()
  await until(() => calls > 0)
  // The rest of a stream, and what follows a failure.
  for (let turn = 0; turn < 50; turn++) await new Promise((resolve) => setImmediate(resolve))
}

async function until(condition: () => boolean): Promise<void> {
  for (let turn = 0; turn < 100_000 && !condition(); turn++) await new Promise((resolve) => setImmediate(resolve))
  expect(condition()).toBe(true)
}

const REQUESTS: readonly (readonly [string, Sent])[] = [
  ['a response', { path: CHAT, body: chat() }],
  ['a stream', { path: CHAT, body: chat({ stream: true }) }],
  ['a detached stream', { path: CHAT, body: chat({ stream: true }), headers: { 'x-svc-detach': 'true' } }],
  ['an idempotent stream', { path: CHAT, body: chat({ stream: true }), headers: { 'idempotency-key': 'a' } }],
  ['an idempotent response', { path: CHAT, body: chat(), headers: { 'idempotency-key': 'b' } }],
  ['a failure', { path: CHAT, body: '{' }],
  ['a failed stream', { path: CHAT, body: chat({ stream: true, model: 'extractive/none' }) }],
  [
    'the messages format',
    {
      path: '/v1/messages',
      body: chat({ stream: true, max_tokens: 10 }),
      headers: { 'anthropic-version': '2023-06-01' },
    },
  ],
  [
    'the responses format',
    {
      path: '/v1/responses',
      body: JSON.stringify({ model: 'extractive/extractive', input: 'Hi there, what is up?', stream: true }),
    },
  ],
  ['an unknown path', { path: '/v1/none' }],
  ['the list of models', { path: '/v1/models', method: 'GET' }],
  ['the status page', { path: '/', method: 'GET' }],
  ['the metrics', { path: '/metrics', method: 'GET' }],
  ['embeddings', { path: '/v1/embeddings', body: JSON.stringify({ model: 'extractive/extractive', input: 'a' }) }],
]
const FAILING: readonly (readonly Method[])[] = [
  ['send'],
  ['begin'],
  ['write'],
  ['onDrain'],
  ['end'],
  ['send', 'begin', 'write', 'onDrain', 'end', 'destroy'],
]

describe.each(REQUESTS)('a sink that throws, for %s', (__, sent) => {
  it.each(FAILING.map((methods) => [methods.join(', '), methods] as const))(
    'causes no unhandled rejection: %s',
    async (_, failing) => {
      gateway = createGateway({ providers: [extractive()], store: memoryStore(), admin: { key: ADMIN_KEY } })
      const { value } = await gateway.keys.create({ name: 'test' })
      const secret = sent.path === '/metrics' ? ADMIN_KEY : value
      const reasons = await collectUnhandledRejections(() => request(secret, sent, failing))
      expect(reasons).toEqual([])
      await gateway.close()
    },
  )
})
