/** Starts a server: npx tsx examples/node.ts */
import { createGateway } from 'sluice'
import { extractive } from 'sluice/testing'
import { serve } from 'sluice/node'

const gateway = createGateway({ providers: [extractive()] })
const key = await gateway.keys.create({ name: 'example', budgetLimitCents: 1000, budgetResetDuration: '1M' })

const server = await serve(gateway, { port: Number(process.env['PORT'] ?? 3000), drainMs: 30_000 })
console.log(`${server.url}/v1 with the key ${key.value}`)

process.once('SIGTERM', async () => {
  await server.close()
  await gateway.close()
})
