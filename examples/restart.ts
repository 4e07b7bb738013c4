/** Keeps a key and its usage across a restart in a SQLite file, offline: npx tsx examples/restart.ts [FILE] */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import Database from 'libsql'
import { createGateway, type Gateway } from 'sluice'
import { extractive } from 'sluice/testing'
import { sqliteStore } from 'sluice/sqlite'

const directory = mkdtempSync(join(tmpdir(), 'sluice-restart-'))
const file = process.argv[2] ?? join(directory, 'sluice.db')

/** Opens the file, runs `work` with a gateway, and closes both. */
async function run<Result>(work: (gateway: Gateway) => Promise<Result>): Promise<Result> {
  const database = new Database(file)
  const gateway = createGateway({ providers: [extractive()], store: sqliteStore({ database }) })
  try {
    return await work(gateway)
  } finally {
    await gateway.close()
    database.close()
  }
}

async function ask(gateway: Gateway, key: string): Promise<number> {
  const response = await gateway.fetch(
    new Request('http://localhost/v1/chat/completions', {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        model: 'extractive/extractive',
        max_tokens: 50,
        messages: [{ role: 'user', content: 'A sluice is a gate for water. What is a sluice?' }],
      }),
    }),
  )
  await response.text()
  return response.status
}

const key = await run(async (gateway) => {
  const created = await gateway.keys.create({
    name: 'example',
    rateLimitRequests: 3,
    rateLimitResetDuration: '1M',
  })
  console.log('before:', await ask(gateway, created.value), await ask(gateway, created.value))
  return created
})

await run(async (gateway) => {
  console.log('after the restart:', await ask(gateway, key.value), await ask(gateway, key.value))
  const { requests } = await gateway.keys.usage(key.id)
  const { records } = await gateway.audit.read({ keyId: key.id })
  console.log(`usage: ${requests} requests, ${records.length} audit records`)
})
rmSync(directory, { recursive: true })
