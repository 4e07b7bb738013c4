import { checkOptions, expects, functionCheck, integerFrom, optionsOf } from '../../core/check-options.ts'
import { checkReceiverUrl } from '../../core/check-url.ts'
import type { BudgetEvent, Plugin } from '../../kernel/plugin.ts'
import { sign } from './signature.ts'

/** Options for `webhook()`. */
export interface WebhookOptions {
  /** Receives the events. Must be https, except on this machine. */
  readonly url: string
  /** At least 16 characters. Signs the events; the receiver passes it to `verifyWebhook()`. */
  readonly secret: string
  /** Name of the plugin. Two webhooks of one gateway need different names. @default 'webhook' */
  readonly name?: string
  /** Time after which a delivery has failed, in milliseconds, at most 9,000. @default 5,000 */
  readonly timeoutMs?: number
  /** @default the global fetch */
  readonly fetch?: typeof globalThis.fetch
}

const DEFAULT_TIMEOUT_MS = 5_000
/** Less than the time that `onBudget` may take. */
const MAX_TIMEOUT_MS = 9_000

const checkWebhook = optionsOf(
  {
    url: checkReceiverUrl,
    secret: expects('a string of at least 16 characters', (value) => typeof value === 'string' && value.length >= 16),
    name: expects('a string', (value) => typeof value === 'string'),
    timeoutMs: integerFrom(1, MAX_TIMEOUT_MS, 'milliseconds'),
    fetch: functionCheck('fetch(url, init)'),
  },
  ['url', 'secret'],
  'an object with url and secret',
)

/**
 * Posts each budget event as JSON to a URL, with the header `X-Svc-Signature`. A delivery succeeds with a status from 200
 * to 299, and is repeated otherwise. Repetitions have the same `id`. Redirects are not followed.
 *
 * @example
 * const alerts = webhook({ url: 'https://example.com/hooks/budgets', secret })
 * const gateway = createGateway({ providers: [openai()], plugins: [alerts] })
 */
export function webhook(options: WebhookOptions): Plugin {
  checkOptions('webhook', options, checkWebhook)
  const { url, secret, name = 'webhook', timeoutMs = DEFAULT_TIMEOUT_MS, fetch = globalThis.fetch } = options
  return {
    name,
    onBudget: async (event: BudgetEvent) => {
      const body = JSON.stringify(event)
      const response = await fetch(url, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          'x-svc-signature': await sign(body, secret, Math.floor(Date.now() / 1000)),
        },
        body,
        redirect: 'manual',
        signal: AbortSignal.timeout(timeoutMs),
      })
      // The body is not read, so that its length does not matter.
      void response.body?.cancel().catch(() => {})
      if (response.ok) return
      throw new Error(`The webhook answered with status ${response.status}; expected 200 to 299.`)
    },
  }
}
