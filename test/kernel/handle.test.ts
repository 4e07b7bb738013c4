import { afterEach, describe, expect, it } from 'vitest'
import type { HttpRequest, ResponseSink } from '../../src/core/http.ts'
import { createGateway, memoryStore, type Gateway } from '../../src/index.ts'
import { extractive } from '../../src/testing.ts'

let gateway: Gateway | undefined
afterEach(() => gateway?.close())

const BODY = new TextEncoder().encode('{"model":"extractive/extractive","messages":[{"role":"user","content":"Hi?"}]}')

/** Resolves with the status when the response begins. */
function respond(request: Partial<HttpRequest>, secret: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const whole: HttpRequest = {
      method: 'POST',
      path: '/v1/chat/completions',
      query: '',
      origin: '',
      header: (name) => (name === 'authorization' ? `Bearer ${secret}` : undefined),
      headerNames: () => ['authorization'],
      body: () => BODY,
      onDisconnect: () => {},
      ...request,
    }
    const sink: ResponseSink = {
      send: resolve,
      begin: resolve,
      write: () => true,
      onDrain: () => {},
      end: () => {},
      destroy: () => reject(new Error('The response is destroyed.')),
    }
    expect(() => gateway?.handle(whole, sink)).not.toThrow()
  })
}

const fails = (): never => {
  throw new Error('broken')
}

const METHODS = ['', 'get', 'GET', 'POST', 'DELETE', 'TRACE']
const PATHS = [
  '',
  '/',
  '//',
  '*',
  '/%',
  '/v1/%ff%',
  '\u0000',
  '/v1/models',
  '/admin/keys',
  '/metrics',
  'x'.repeat(100_000),
]

describe('Gateway.handle', () => {
  it('answers any method and path', async () => {
    gateway = createGateway({ providers: [extractive()], store: memoryStore() })
    const { value } = await gateway.keys.create({ name: 'test' })
    for (const path of PATHS)
      for (const method of METHODS) expect(await respond({ method, path }, value)).toBeGreaterThanOrEqual(200)
  })

  it.each<[string, Partial<HttpRequest>]>([
    ['whose body throws', { body: fails }],
    ['whose body rejects', { body: () => Promise.reject(new Error('broken')) }],
    ['whose body is not UTF-8', { body: () => new Uint8Array([255, 254]) }],
    ['whose headers throw', { header: fails }],
    ['whose names of headers throw', { headerNames: fails }],
    ['whose onDisconnect throws', { onDisconnect: fails }],
  ])('answers a request %s, with a log that throws', async (_, request) => {
    gateway = createGateway({ providers: [extractive()], store: memoryStore(), log: fails })
    const { value } = await gateway.keys.create({ name: 'test' })
    expect(await respond(request, value)).toBeGreaterThanOrEqual(400)
  })
})
