/** Mounts the gateway in an Express application: npx tsx examples/express.ts */
import express from 'express'
import type { AddressInfo } from 'node:net'
import { createGateway } from 'sluice'
import { extractive } from 'sluice/testing'
import { toExpress } from 'sluice/express'

const gateway = createGateway({ providers: [extractive()], basePath: '/ai' })
const key = await gateway.keys.create({ name: 'example' })

const app = express()
app.use('/ai', toExpress(gateway))
app.use(express.json())
app.post('/echo', (request, response) => void response.json(request.body))

const server = app.listen(Number(process.env['PORT'] ?? 3000), () => {
  const { port } = server.address() as AddressInfo
  console.log(`http://localhost:${port}/ai/v1 with the key ${key.value}`)
})
