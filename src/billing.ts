/** The entry point `sluice/billing`: what reports budgets and bills to other systems. */
export { verifyWebhook, type VerifyWebhookOptions } from './plugins/webhook/signature.ts'
export { webhook, type WebhookOptions } from './plugins/webhook/webhook.ts'
