/** Reports each billed request to Stripe, which writes the invoices of a real application. */
import { billingEvents, stripeMeter } from 'sluice/billing'

/** The customers in Stripe. Both teams of an organization are on one invoice. null: not billed. */
const STRIPE_IDS: Readonly<Record<string, string | null>> = {
  lena: 'cus_lena',
  studio: 'cus_studio',
  'acme-support': 'cus_acme',
  'acme-research': 'cus_acme',
  lockside: null,
}

const startedAt = Date.now()

interface MeterEvent {
  readonly customer: string
  readonly nanoUsd: number
}

/** The meter events by identifier. */
const meterEvents = new Map<string, MeterEvent>()

/** What the meter of Stripe has counted since the start, by customer of Stripe. */
export function meteredNanoUsd(): ReadonlyMap<string, number> {
  const sums = new Map<string, number>()
  for (const { customer, nanoUsd } of meterEvents.values()) sums.set(customer, (sums.get(customer) ?? 0) + nanoUsd)
  return sums
}

/** A Stripe for offline use, which counts each identifier once. */
async function scriptedStripe(_: unknown, init?: RequestInit): Promise<Response> {
  const event = new URLSearchParams(String(init?.body))
  const identifier = event.get('identifier') ?? ''
  if (meterEvents.has(identifier)) {
    const message = `An event already exists with identifier ${identifier}.`
    return Response.json({ error: { type: 'invalid_request_error', message } }, { status: 400 })
  }
  const customer = event.get('payload[stripe_customer_id]') ?? ''
  meterEvents.set(identifier, { customer, nanoUsd: Number(event.get('payload[value]')) })
  return Response.json({ object: 'billing.meter_event', identifier })
}

/** A plugin of the gateway. An event is stored with the settlement of its request, so that none is lost or counted twice. */
export const stripeBilling = billingEvents({
  send: stripeMeter({
    apiKey: process.env['STRIPE_KEY'] ?? 'key of the demo',
    eventName: 'llm_usage',
    // What demo-data.ts adds has been billed already.
    customerId: (customer = '', { at }) => (at < startedAt ? null : STRIPE_IDS[customer]),
    fetch: scriptedStripe,
  }),
})
