import process from 'node:process'
import { gatewayFor } from './requests.js'

// Nothing but the request keeps this process alive: no server, and no timer of its own.
const gateway = gatewayFor(process.argv[2])
const key = await gateway.keys.create({ name: 'script' })
const response = await gateway.fetch('http://gateway.test/v1/chat/completions', {
  method: 'POST',
  headers: { authorization: `Bearer ${key.value}`, 'content-type': 'application/json' },
  body: JSON.stringify({ model: 'chat/large', messages: [{ role: 'user', content: 'Hello' }] }),
})
const answer = await response.json()
process.stdout.write(`${response.status} ${answer.choices?.[0].message.content}\n`)
await gateway.close()
