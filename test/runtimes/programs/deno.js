import process from 'node:process'
import { fetchHandlerFor, gatewayFor } from './requests.js'

const fetch = fetchHandlerFor(gatewayFor(process.argv[2]))
Deno.serve(
  {
    port: 0,
    hostname: '127.0.0.1',
    onListen: ({ port }) => process.stdout.write(`http://127.0.0.1:${port}\n`),
  },
  fetch,
)
