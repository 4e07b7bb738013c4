import process from 'node:process'
import { fetchHandlerFor, gatewayFor } from './requests.js'

const fetch = fetchHandlerFor(gatewayFor(process.argv[2]))
const server = Bun.serve({ port: 0, hostname: '127.0.0.1', idleTimeout: 0, fetch })
process.stdout.write(`http://127.0.0.1:${server.port}\n`)
