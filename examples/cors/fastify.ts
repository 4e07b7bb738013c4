/** Starts a Fastify application that allows cross-origin requests from one site: npx tsx examples/cors/fastify.ts */
import fastify from 'fastify'
import { createGateway } from 'sluice'
import { extractive } from 'sluice/testing'
import { toFastify } from 'sluice/fastify'

const SITE = 'https://app.example.com'

const gateway = createGateway({ providers: [extractive()], basePath: '/ai' })
const key = await gateway.keys.create({ name: 'example' })

const app = fastify()
app.addHook('onRequest', async (request, reply) => {
  if (!request.url.startsWith('/ai/')) return
  reply.headers({ 'access-control-allow-origin': SITE, 'access-control-expose-headers': '*' })
  if (request.method !== 'OPTIONS') return
  reply.headers({
    'access-control-allow-methods': 'GET, POST, DELETE',
    'access-control-allow-headers': request.headers['access-control-request-headers'] ?? '',
    'access-control-max-age': '3600',
  })
  return reply.code(204).send()
})
app.register(toFastify(gateway), { prefix: '/ai' })

const address = await app.listen({ port: Number(process.env['PORT'] ?? 3000) })
console.log(`${address}/ai/v1 with the key ${key.value}`)
