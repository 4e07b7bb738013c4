/** Starts a server that allows cross-origin requests from one site: npx tsx examples/cors/node.ts */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { createGateway } from 'sluice'
import { extractive } from 'sluice/testing'
import { toNodeHandler } from 'sluice/node'

const SITE = 'https://app.example.com'

const gateway = createGateway({ providers: [extractive()] })
const key = await gateway.keys.create({ name: 'example' })

const handle = toNodeHandler(gateway)
const server = createServer((request, response) => {
  response.setHeader('Access-Control-Allow-Origin', SITE)
  response.setHeader('Access-Control-Expose-Headers', '*')
  if (request.method !== 'OPTIONS') return void handle(request, response)
  response.setHeader('Access-Control-Allow-Methods', 'GET, POST, DELETE')
  response.setHeader('Access-Control-Allow-Headers', request.headers['access-control-request-headers'] ?? '')
  response.setHeader('Access-Control-Max-Age', '3600')
  response.writeHead(204).end()
})

server.listen(Number(process.env['PORT'] ?? 3000), () => {
  const { port } = server.address() as AddressInfo
  console.log(`http://localhost:${port}/v1 with the key ${key.value}`)
})
