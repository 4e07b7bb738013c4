import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

/** How the server reacts to a request. `lose`: it records the event and closes the connection without a response. */
export type StripeReaction = 'record' | 'lose' | 'hang' | 'rate-limit' | 'error' | 'no-customer' | 'unauthorized'

export interface MeterEvent {
  readonly identifier: string
  readonly customer: string
  readonly value: string
  readonly timestamp: number
}

/** The meter events of Stripe: form-encoded, and unique by identifier. Reactions are used up in order, then all are recorded. */
export async function startStripe(reactions: StripeReaction[] = []) {
  const recorded: MeterEvent[] = []
  const received: { readonly authorization: string | undefined; readonly body: string }[] = []
  let duplicates = 0
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const body = Buffer.concat(chunks).toString()
      received.push({ authorization: request.headers.authorization, body })
      const fail = (status: number, message: string): void => {
        response.writeHead(status, { 'content-type': 'application/json' })
        response.end(JSON.stringify({ error: { type: 'invalid_request_error', message } }))
      }
      if (request.url !== '/v1/billing/meter_events' || request.method !== 'POST') return fail(404, 'Not found')
      const fields = new URLSearchParams(body)
      const identifier = fields.get('identifier') ?? ''
      const reaction = reactions.shift() ?? 'record'
      if (reaction === 'hang') return
      if (reaction === 'rate-limit') return fail(429, 'Too many requests')
      if (reaction === 'error') return fail(500, 'Internal error')
      if (reaction === 'no-customer') return fail(400, 'No such customer. Key sk_test_secret123 was used.')
      if (reaction === 'unauthorized') return fail(401, 'Invalid API Key provided')
      if (recorded.some((event) => event.identifier === identifier)) {
        duplicates += 1
        return fail(400, `An event already exists with identifier ${identifier}.`)
      }
      recorded.push({
        identifier,
        customer: fields.get('payload[stripe_customer_id]') ?? '',
        value: fields.get('payload[value]') ?? '',
        timestamp: Number(fields.get('timestamp')),
      })
      if (reaction === 'lose') return void request.socket.destroy()
      response.writeHead(200, { 'content-type': 'application/json' })
      response.end(JSON.stringify({ object: 'billing.meter_event', identifier }))
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo
  return {
    baseUrl: `http://127.0.0.1:${port}`,
    recorded,
    received,
    duplicates: () => duplicates,
    close: async () => {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
