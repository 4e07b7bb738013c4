import { expect, it } from 'vitest'
import { Cancellation } from '../../src/core/async.ts'
import type { JsonObject } from '../../src/core/json.ts'
import type { Parsed } from '../../src/pipeline/exchange.ts'
import { deduplicate } from '../../src/pipeline/rare-stages.ts'
import type { Services } from '../../src/pipeline/services.ts'

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
    key: { id: 'key' },
    subscribers: {},
    cancellation: new Cancellation(),
    request: { path: '/v1/messages', header: () => 'one' },
    requestBody,
    size: { mayContainLargeMedia: true },
  }
  let turns = 0
  let isRunning = true
  const turn = (): void => {
    turns += 1
    if (isRunning) setImmediate(turn)
  }
  turn()
  await deduplicate(parsed as never as Parsed, { idempotency: { claim }, timeouts: { total: 1 } } as never as Services)
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
