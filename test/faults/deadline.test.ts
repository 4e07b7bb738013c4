import { request as httpRequest } from 'node:http'
import { afterEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { createGateway, memoryStore, type KeyUsage } from '../../src/index.ts'
import { extractive } from '../../src/testing.ts'
import { sendRequest, CHAT, type Reply } from '../support/send-request.ts'
import { startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { formatEvent, buildEvents, gate, type UpstreamRequest } from '../support/upstream.ts'

const closing: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
})

async function start(options: StageOptions): Promise<Stage> {
  const stage = await startStage(options)
  closing.push(stage.close)
  return stage
}

/** A request whose maximum cost is the whole budget below. */
const LARGE: JsonObject = { ...CHAT.body, max_tokens: 1000, n: 8 }
const KEY = { name: 'small', budget_limit_cents: 1, budget_reset_duration: '1d' } as const

describe('the money of a request', () => {
  it('remains reserved until after its deadline', async () => {
    const release = gate()
    const clock = { now: Date.UTC(2026, 0, 30, 12, 0, 0) }
    const stage = await start({
      key: KEY,
      store: memoryStore({ now: () => clock.now }),
      runtime: { now: () => clock.now, random: () => 0 },
      reply: async () => {
        await release.opened
        return 'Late.'
      },
    })
    const first = sendRequest(stage, LARGE)
    await stage.upstream.waitForRequest(1)
    const others: Promise<Reply>[] = []
    for (const afterMs of [1, 599_999, 30_000]) {
      clock.now += afterMs
      others.push(sendRequest(stage, LARGE))
      await Promise.race([others.at(-1), stage.upstream.waitForRequest(2)])
    }
    release.open()
    expect((await Promise.all(others)).map(({ status }) => status)).toEqual([402, 402, 402])
    expect((await first).status).toBe(200)
  })

  it('of a stream without a reader is settled after the deadline, for the received part', async () => {
    const stage = await start({
      key: KEY,
      timeouts: { totalMs: 300 },
      reply: (request) => ({ kind: 'events', items: flood(request) }),
    })
    await openUnread(stage)
    await stage.upstream.last.aborted
    // If the settlement never comes, the loop runs until the timeout of the test.
    while ((await usageOf(stage)).requests === 0) {
      await new Promise((resolve) => {
        setImmediate(resolve)
      })
    }
    expect((await usageOf(stage)).tokens).not.toMatchObject({ completion: 0 })
    // The reservation is released, so another request fits.
    expect((await sendRequest(stage, { ...CHAT.body, max_tokens: 20 })).status).not.toBe(402)
  })
})

describe('time options', () => {
  it.each([0, 1.5, 86_400_001, Infinity, '600'])('timeouts.totalMs of %s is an error at the start', (totalMs) => {
    const options = { providers: [extractive()], timeouts: { totalMs } }
    expect(() => Reflect.apply(createGateway, undefined, [options])).toThrow(/timeouts\.totalMs/)
  })

  it.each<[string, unknown]>([
    ['failureShare', 0],
    ['failureShare', 1.1],
    ['minRequests', 0],
    ['windowMs', 999],
    ['openMs', 1],
    ['probesPerSecond', 0.5],
    ['failures', 5],
  ])('circuitBreaker.%s of %s is an error at the start', (name, value) => {
    const options = { providers: [extractive()], circuitBreaker: { [name]: value } }
    expect(() => Reflect.apply(createGateway, undefined, [options])).toThrow(/circuitBreaker/)
  })
})

/** Larger than all buffers between the upstream and the client. */
function* flood(request: UpstreamRequest): Generator<string> {
  const [first, second] = buildEvents(request, { text: ['word '.repeat(10_000)] })
  if (first !== undefined) yield formatEvent(first)
  while (second !== undefined) yield formatEvent(second)
}

function usageOf({ gateway, keyId }: Stage): Promise<KeyUsage> {
  return gateway.keys.usage(keyId)
}

function openUnread(stage: Stage): Promise<void> {
  const { hostname, port } = new URL(stage.url)
  const headers = { authorization: `Bearer ${stage.secret}`, 'content-type': 'application/json' }
  return new Promise((resolve, reject) => {
    const outgoing = httpRequest({ hostname, port, path: CHAT.path, method: 'POST', headers }, () => resolve())
    outgoing.on('error', reject)
    outgoing.end(JSON.stringify({ ...CHAT.body, stream: true, max_tokens: 1000 }))
    closing.push(() => outgoing.destroy())
  })
}
