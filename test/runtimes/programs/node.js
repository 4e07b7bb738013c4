import process from 'node:process'
import { serve } from 'sluice/node'
import { gatewayFor, handlingFor } from './requests.js'

const server = await serve(handlingFor(gatewayFor(process.argv[2])), { port: 0, hostname: '127.0.0.1' })
process.stdout.write(`${server.url}\n`)
