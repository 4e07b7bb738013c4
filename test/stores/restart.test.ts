import { join } from 'node:path'
import { afterAll, expect, it } from 'vitest'
import { createGateway, type Gateway } from '../../src/index.ts'
import { extractive } from '../../src/testing.ts'
import { sqliteStore } from '../../src/sqlite.ts'
import { sqliteDrivers, temporaryDirectory } from '../support/sqlite.ts'

const directory = temporaryDirectory()
const [driver] = sqliteDrivers()

afterAll(() => directory.remove())

/** Runs one process on the file. */
async function run<result>(work: (gateway: Gateway) => Promise<result>): Promise<result> {
  const database = driver!.open(join(directory.path, 'restart.db'))
  const gateway = createGateway({ providers: [extractive()], store: sqliteStore({ database }) })
  try {
    return await work(gateway)
  } finally {
    await gateway.close()
    database.close()
  }
}

const QUESTION = {
  model: 'extractive/extractive',
  max_tokens: 50,
  messages: [{ role: 'user', content: 'A sluice is a gate for water. What is a sluice?' }],
}

async function send(
  gateway: Gateway,
  key: string,
  path: string,
  body?: object,
  headers: Readonly<Record<string, string>> = {},
): Promise<{ readonly status: number; readonly text: string }> {
  const init = body === undefined ? { method: 'GET' } : { method: 'POST', body: JSON.stringify(body) }
  const response = await gateway.fetch(
    new Request(`http://localhost${path}`, {
      ...init,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
    }),
  )
  return { status: response.status, text: await response.text() }
}

it('keys, budgets, usage, audit, batches, recordings and idempotency records survive a restart', async () => {
  const idempotent = { 'idempotency-key': 'once' }
  const before = await run(async (gateway) => {
    await gateway.budgets.create({ id: 'team', max_limit: 50, reset_duration: '1M' })
    const key = await gateway.keys.create({ name: 'restart', budget_id: 'team', budget_limit_cents: 500 })
    const first = await send(gateway, key.value, '/v1/chat/completions', QUESTION, idempotent)
    const streamed = await send(gateway, key.value, '/v1/messages', { ...QUESTION, stream: true })
    const messageId = /"id":"(msg[^"]*)"/.exec(streamed.text)?.[1] ?? ''
    const made = await send(gateway, key.value, '/v1/messages/batches', {
      requests: [{ custom_id: 'one', params: QUESTION }],
    })
    const batchId = (JSON.parse(made.text) as { readonly id: string }).id
    await expect
      .poll(async () => (await send(gateway, key.value, `/v1/messages/batches/${batchId}`)).text, { timeout: 280_000 })
      .toContain('"ended"')
    return { key, first, messageId, batchId, usage: await gateway.keys.usage(key.id) }
  })
  expect(before.first.status).toBe(200)

  await run(async (gateway) => {
    const { key, first, messageId, batchId, usage } = before
    expect(await gateway.keys.usage(key.id)).toEqual(usage)
    expect(await gateway.budgets.get('team')).toMatchObject({ id: 'team', maxLimitUsd: 50 })
    expect((await gateway.audit.read({ keyId: key.id })).records).not.toHaveLength(0)
    const repeated = await send(gateway, key.value, '/v1/chat/completions', QUESTION, idempotent)
    expect(repeated).toEqual(first)
    const replayed = await send(gateway, key.value, `/v1/messages/${messageId}/streams`, {})
    expect(replayed).toMatchObject({ status: 200, text: expect.stringContaining('message_stop') as string })
    const results = await send(gateway, key.value, `/v1/messages/batches/${batchId}/results`)
    expect(results.text).toContain('"custom_id":"one"')
    expect(await gateway.keys.usage(key.id)).toEqual(usage)
    expect((await send(gateway, key.value, '/v1/chat/completions', QUESTION)).status).toBe(200)
  })
})
