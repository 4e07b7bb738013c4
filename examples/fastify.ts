/** Mounts the gateway in a Fastify application: npx tsx examples/fastify.ts */
import fastify from 'fastify'
import { createGateway } from 'sluice'
import { extractive } from 'sluice/testing'
import { toFastify } from 'sluice/fastify'

const gateway = createGateway({ providers: [extractive()], basePath: '/ai' })
const key = await gateway.keys.create({ name: 'example' })

const app = fastify()
app.register(toFastify(gateway), { prefix: '/ai' })
app.post('/echo', (request, reply) => void reply.send(request.body))
app.addHook('onClose', () => gateway.close())

const address = await app.listen({ port: Number(process.env['PORT'] ?? 3000) })
console.log(`${address}/ai/v1 with the key ${key.value}`)
