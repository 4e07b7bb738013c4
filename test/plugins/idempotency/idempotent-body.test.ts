import { expect, it, vi } from 'vitest'
import { Cancellation } from '../../../src/core/async.ts'
import type * as cache from '../../../src/core/cache.ts'
import type { Provider } from '../../../src/core/ports.ts'
import type { JsonObject } from '../../../src/core/json.ts'
import { createGateway, memoryStore } from '../../../src/index.ts'
import type { Parsed } from '../../../src/kernel/exchange.ts'
import { deduplicate } from '../../../src/plugins/idempotency/deduplicate.ts'
import type { Services } from '../../../src/kernel/services.ts'
import { testModel } from '../../support/provider-call.ts'

/** Returns the fingerprint of a body, and the number of turns of the event loop that its computation took. */
async function fingerprintOf(
  requestBody: JsonObject,
): Promise<{ readonly fingerprint: string; readonly turns: number }> {
  let fingerprint = ''
  const claim = async (request: { readonly fingerprint: string }): Promise<object> => {
    fingerprint = request.fingerprint
    return { role: 'first', first: {} }
  }
  const parsed = {
    caller: { scope: 'key' },
    hasClient: true,
    subscribers: {},
    cancellation: new Cancellation(),
    request: { path: '/v1/messages', header: () => 'one' },
    requestBody,
    prompt: { stream: false },
    size: { mayContainLargeMedia: true },
  }
  let turns = 0
  let isRunning = true
  const turn = (): void => {
    turns += 1
    if (isRunning) setImmediate(turn)
  }
  turn()
  await deduplicate(parsed as never as Parsed, { claim: claim as never }, {
    timeouts: { totalMs: 1 },
  } as never as Services)
  isRunning = false
  return { fingerprint, turns }
}

it('a large body with an Idempotency-Key is hashed in many turns of the event loop', async () => {
  const bodyWith = (end: string) => ({ messages: [{ content: [{ data: `${'abcd'.repeat(2_000_000)}${end}` }] }] })
  const [first, same, other] = [
    await fingerprintOf(bodyWith('x')),
    await fingerprintOf(bodyWith('x')),
    await fingerprintOf(bodyWith('y')),
  ]
  expect(first.turns).toBeGreaterThan(20)
  expect(first.fingerprint).toMatch(/^[0-9a-f]{64}$/)
  expect([same.fingerprint === first.fingerprint, other.fingerprint === first.fingerprint]).toEqual([true, false])
})

const digests = { count: 0 }

vi.mock('../../../src/core/cache.ts', async (load) => {
  const real = await load<typeof cache>()
  const digestWithPauses: typeof real.digestWithPauses = (steps, pause) => {
    digests.count += 1
    return real.digestWithPauses(steps, pause)
  }
  return { ...real, digestWithPauses }
})

it('a large embedding request with an Idempotency-Key is hashed with pauses', async () => {
  const model = { ...testModel, id: 'vectors', kind: 'embedding' } as const
  const provider: Provider = {
    name: 'own',
    dialect: 'chat',
    models: [model],
    model: () => model,
    complete: async () => expect.fail('a chat call'),
    stream: async () => expect.fail('a chat call'),
    embed: async ({ request }) => ({ model: 'vectors', embeddings: request.inputs.map(() => [1]), inputTokens: 1 }),
  }
  const gateway = createGateway({ providers: [provider], store: memoryStore() })
  const { value: secret } = await gateway.keys.create({ name: 'key' })
  const body = JSON.stringify({ model: 'own/vectors', input: ['word '.repeat(60_000)] })
  const headers = { 'x-api-key': secret, 'content-type': 'application/json', 'idempotency-key': 'one' }
  digests.count = 0
  const request = new Request('http://gateway/v1/embeddings', { method: 'POST', headers, body })
  expect((await gateway.fetch(request)).status).toBe(200)
  expect(digests.count).toBe(1)
  await gateway.close()
})
