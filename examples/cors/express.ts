/** Starts an Express application that allows cross-origin requests from one site: npx tsx examples/cors/express.ts */
import express from 'express'
import type { AddressInfo } from 'node:net'
import { createGateway } from 'sluice'
import { extractive } from 'sluice/testing'
import { toExpress } from 'sluice/express'

const SITE = 'https://app.example.com'

const gateway = createGateway({ providers: [extractive()], basePath: '/ai' })
const key = await gateway.keys.create({ name: 'example' })

const app = express()
app.use('/ai', (request, response, next) => {
  response.set({ 'Access-Control-Allow-Origin': SITE, 'Access-Control-Expose-Headers': '*' })
  if (request.method !== 'OPTIONS') return next()
  response.set({
    'Access-Control-Allow-Methods': 'GET, POST, DELETE',
    'Access-Control-Allow-Headers': request.get('Access-Control-Request-Headers') ?? '',
    'Access-Control-Max-Age': '3600',
  })
  response.sendStatus(204)
})
app.use('/ai', toExpress(gateway))

const server = app.listen(Number(process.env['PORT'] ?? 3000), () => {
  const { port } = server.address() as AddressInfo
  console.log(`http://localhost:${port}/ai/v1 with the key ${key.value}`)
})
