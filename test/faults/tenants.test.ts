import { request as httpRequest, type ClientRequest } from 'node:http'
import { afterEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { sendRequest, CHAT, MESSAGE, type Endpoint, type Reply } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { formatEvent, buildEvents, gate, type UpstreamRequest } from '../support/upstream.ts'

const closing: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
})

/** Texts of a prompt that choose the behavior of the upstream. */
const HANGS = 'please hang'
const FAILS = 'please fail'
const FLOODS = 'please flood'
const TENANTS = 7

const bodyOf = (endpoint: Endpoint, text: string, more: JsonObject = {}): JsonObject => ({
  ...endpoint.body,
  messages: [{ role: 'user', content: text }],
  ...more,
})

interface TenantSetup {
  readonly stage: Stage
  readonly tenants: readonly string[]
  /** Returns the number of requests that the upstream does not answer yet. */
  readonly hanging: () => number
  /** Returns the number of tenant requests that the upstream received. */
  readonly fromTenants: () => number
}

/** Creates eight keys: the key of the stage is hostile, the others are tenants. Hanging requests end with the test. */
async function start(): Promise<TenantSetup> {
  const release = gate()
  let hanging = 0
  let fromTenants = 0
  const stage = await startStage({
    reply: async (request) => {
      if (request.text.includes(HANGS)) {
        hanging += 1
        await release.opened
      }
      if (request.text.includes('tenant')) fromTenants += 1
      if (request.text.includes(FAILS)) return { kind: 'failure', status: 500 }
      if (request.text.includes(FLOODS)) return { kind: 'events', items: flood(request) }
      return 'Here you are.'
    },
  })
  closing.push(() => stage.close())
  closing.push(release.open)
  const names = Array.from({ length: TENANTS }, (_, index) => `tenant ${index}`)
  const keys = await Promise.all(names.map((name) => stage.gateway.keys.create({ name })))
  return { stage, tenants: keys.map(({ value }) => value), hanging: () => hanging, fromTenants: () => fromTenants }
}

function* flood(request: UpstreamRequest): Generator<string> {
  const [first, second] = buildEvents(request, { text: ['word '.repeat(10_000)] })
  if (first !== undefined) yield formatEvent(first)
  while (second !== undefined) yield formatEvent(second)
}

/** Starts a stream that its client never reads, and resolves with its headers. */
function openUnread(stage: Stage): Promise<void> {
  const { hostname, port } = new URL(stage.url)
  const headers = { authorization: `Bearer ${stage.secret}`, 'content-type': 'application/json' }
  return new Promise((resolve, reject) => {
    const outgoing: ClientRequest = httpRequest({ hostname, port, path: CHAT.path, method: 'POST', headers }, () =>
      resolve(),
    )
    outgoing.on('error', reject)
    outgoing.end(JSON.stringify(bodyOf(CHAT, FLOODS, { stream: true })))
    closing.push(() => outgoing.destroy())
  })
}

/** Sends requests of each tenant to both endpoints, for whole responses and for streams. */
async function sendAsTenants({ stage, tenants }: TenantSetup): Promise<readonly Reply[]> {
  const replies = tenants.map(async (secret) => {
    const own: Reply[] = []
    for (const endpoint of [CHAT, MESSAGE]) {
      for (const stream of [false, true]) {
        own.push(
          await sendRequest(stage, bodyOf(endpoint, 'a tenant asks', { stream }), { path: endpoint.path, secret }),
        )
      }
    }
    return own
  })
  return (await Promise.all(replies)).flat()
}

/** Expects that each request of a tenant is answered with one upstream call: no rejection, no retry, no queueing. */
async function expectUndisturbed(setup: TenantSetup): Promise<void> {
  const before = setup.fromTenants()
  const replies = await sendAsTenants(setup)
  expect(replies.map(({ status }) => status)).toEqual(Array(TENANTS * 4).fill(200))
  expect(setup.fromTenants() - before).toBe(TENANTS * 4)
}

async function failFor({ stage }: TenantSetup, times: number): Promise<void> {
  const failing = [CHAT, MESSAGE].flatMap((endpoint) =>
    Array.from({ length: times }, () => sendRequest(stage, bodyOf(endpoint, FAILS), { path: endpoint.path })),
  )
  await Promise.all(failing)
}

describe('a hostile key beside seven others', () => {
  it('whose requests hang does not disturb them', async () => {
    const setup = await start()
    for (let count = 0; count < 150; count += 1) void sendRequest(setup.stage, bodyOf(CHAT, HANGS)).catch(() => {})
    await setup.stage.upstream.waitForRequest(150)
    await expectUndisturbed(setup)
    expect(setup.hanging()).toBe(150)
  })

  it('whose requests fail does not open the circuit for other keys', async () => {
    const setup = await start()
    await failFor(setup, 30)
    const circuits = await sendRequest(setup.stage, undefined, { method: 'GET', path: '/health' })
    expect(circuits.body['status']).toBe('degraded')
    await expectUndisturbed(setup)
    await Promise.all([expectUndisturbed(setup), failFor(setup, 30), failFor(setup, 30)])
    await expectUndisturbed(setup)
  })

  it('that reads none of its streams does not disturb them', async () => {
    const setup = await start()
    await Promise.all(Array.from({ length: 25 }, () => openUnread(setup.stage)))
    await expectUndisturbed(setup)
  })

  it('that sends giant prompts does not disturb them', async () => {
    const setup = await start()
    const giant = bodyOf(CHAT, 'far too long a word'.repeat(200_000))
    const giants = Array.from({ length: 4 }, () => sendRequest(setup.stage, giant))
    await expectUndisturbed(setup)
    for (const { status } of await Promise.all(giants)) expect(status).toBeLessThan(500)
  })

  it('whose batches wait for the upstream does not disturb them', async () => {
    const setup = await start()
    const params = { model: MESSAGE.model, max_tokens: 20, messages: [{ role: 'user' as const, content: HANGS }] }
    for (let batch = 0; batch < 3; batch += 1) {
      const requests = Array.from({ length: 20 }, (_, index) => ({ custom_id: `item-${index}`, params }))
      await setup.stage.anthropic.messages.batches.create({ requests })
    }
    await setup.stage.upstream.waitForRequest(1)
    await expectUndisturbed(setup)
    expect(setup.hanging()).toBeGreaterThan(0)
  })

  it('that does all of this at once does not disturb them', async () => {
    const setup = await start()
    for (let count = 0; count < 50; count += 1) void sendRequest(setup.stage, bodyOf(CHAT, HANGS)).catch(() => {})
    await Promise.all(Array.from({ length: 10 }, () => openUnread(setup.stage)))
    const failing = failFor(setup, 30)
    const giant = sendRequest(setup.stage, bodyOf(CHAT, 'far too long a word'.repeat(200_000)))
    await expectUndisturbed(setup)
    await Promise.all([failing, giant])
    await expectUndisturbed(setup)
  })
})
