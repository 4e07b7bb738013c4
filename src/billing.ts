/** The entry point `sluice/billing`: what reports budgets and bills to other systems. */
export type { BillingEvent } from './plugins/billing-events/billing-event.ts'
export {
  billingEvents,
  type BillingEventsOptions,
  type SendBillingEvents,
} from './plugins/billing-events/billing-events.ts'
export { stripeMeter, type StripeMeterOptions } from './plugins/billing-events/stripe-meter.ts'
export { verifyWebhook, type VerifyWebhookOptions } from './plugins/webhook/signature.ts'
export { webhook, type WebhookOptions } from './plugins/webhook/webhook.ts'
