import { isJsonObject, parseJson } from '../../core/json.ts'
import { checkOptions, expects, functionCheck, integerFrom, optionsOf } from '../../core/check-options.ts'
import { checkReceiverUrl } from '../../core/check-url.ts'
import type { MaybePromise } from '../../core/async.ts'
import type { FailedDelivery } from '../../kernel/plugin.ts'
import type { BillingEvent } from './billing-event.ts'
import type { SendBillingEvents } from './billing-events.ts'

/** Options for `stripeMeter()`. */
export interface StripeMeterOptions {
  /** A secret or restricted key of Stripe with write access to meter events. */
  readonly apiKey: string
  /** The `event_name` of the meter. */
  readonly eventName: string
  /**
   * Returns the id of the Stripe customer (`cus_…`) that pays for an event, or null if Stripe does not bill it. Undefined is
   * an error: the event becomes a dead letter. If it throws, it is called again later. `customer` is undefined for requests
   * without a context. @default ids of customers are ids of Stripe customers
   */
  readonly customerId?: (customer: string | undefined, event: BillingEvent) => MaybePromise<string | null | undefined>
  /** Keys of the payload, if the meter has others. @default { customer: 'stripe_customer_id', value: 'value' } */
  readonly payloadKeys?: { readonly customer?: string; readonly value?: string }
  /** Number of requests to Stripe at the same time, 1 to 20. @default 4 */
  readonly concurrency?: number
  /** Maximum time of a request to Stripe, in milliseconds. @default 5,000 */
  readonly timeoutMs?: number
  /** @default 'https://api.stripe.com' */
  readonly baseUrl?: string
  /** @default the global fetch */
  readonly fetch?: typeof globalThis.fetch
}

const text = expects('a string', (value) => typeof value === 'string' && value !== '')

const checkStripeMeter = optionsOf(
  {
    apiKey: text,
    eventName: expects(
      'a string of at most 100 characters',
      (value) => text(value, '') === undefined && String(value).length <= 100,
    ),
    customerId: functionCheck('customerId(customer)'),
    payloadKeys: optionsOf({ customer: text, value: text }),
    concurrency: integerFrom(1, 20),
    timeoutMs: integerFrom(1, 50_000, 'milliseconds'),
    baseUrl: checkReceiverUrl,
    fetch: functionCheck('fetch(url, init)'),
  },
  ['apiKey', 'eventName'],
  'an object with apiKey and eventName',
)

const DAY_MS = 86_400_000
/** Stripe rejects older timestamps. An hour is left for the delivery. */
const MAX_AGE_MS = 35 * DAY_MS - 3_600_000
/** Stripe compares identifiers for at least 24 hours. An hour is left for clocks that differ. */
const UNIQUE_MS = DAY_MS - 3_600_000
const DEFAULT_CONCURRENCY = 4
const DEFAULT_TIMEOUT_MS = 5_000
const CUSTOMER_ID = /^cus_\w+$/
const DUPLICATE = /already exists with identifier/i
const MAX_MESSAGE_LENGTH = 200

/** What happened to an event. `stop`: the next events would fail as well. */
type SendResult =
  | { readonly type: 'sent' }
  | { readonly type: 'retry'; readonly reason: string; readonly stop: boolean }
  | { readonly type: 'rejected'; readonly reason: string }

/**
 * Returns a `send` for `billingEvents()` that creates a meter event of Stripe for each billed request. Its value is the
 * billed amount in nano-dollars, so create the price of the meter with `unit_amount_decimal: '0.0000001'` (cents). The sum
 * is then exact without a remainder. See docs/guides/invoice-from-the-bill.md.
 *
 * @example
 * const send = stripeMeter({ apiKey, eventName: 'llm_usage', customerId: (id) => stripeIds.get(id) })
 * const gateway = createGateway({ providers: [openai()], store, plugins: [billingEvents({ send })] })
 */
export function stripeMeter(options: StripeMeterOptions): SendBillingEvents {
  checkOptions('stripeMeter', options, checkStripeMeter)
  const { concurrency = DEFAULT_CONCURRENCY } = options
  return async (events, { now, firstTriedAt, signal }) => {
    const retry: FailedDelivery[] = []
    const rejected: FailedDelivery[] = []
    let stopped: string | undefined
    const waiting = events.values()
    const work = async (): Promise<void> => {
      for (const event of waiting) {
        const { id } = event
        if (signal.aborted) stopped ??= 'The time for this batch is over.'
        const result: SendResult =
          stopped === undefined
            ? await sendEvent(event, { options, now, firstTriedAt, signal })
            : { type: 'retry', reason: stopped, stop: true }
        if (result.type === 'rejected') rejected.push({ id, reason: result.reason })
        if (result.type !== 'retry') continue
        retry.push({ id, reason: result.reason })
        if (result.stop) stopped ??= result.reason
      }
    }
    await Promise.all(Array.from({ length: concurrency }, work))
    return { retry, rejected }
  }
}

interface SendContext {
  readonly options: StripeMeterOptions
  readonly now: number
  readonly firstTriedAt: number
  readonly signal: AbortSignal
}

async function sendEvent(
  event: BillingEvent,
  { options, now, firstTriedAt, signal }: SendContext,
): Promise<SendResult> {
  if (event.billedNanoUsd === 0) return { type: 'sent' }
  if (now - event.at > MAX_AGE_MS) return rejected('It is older than 35 days, so Stripe would not accept it.')
  // An earlier attempt may have been recorded without a response, and Stripe would now count it twice.
  if (now - firstTriedAt > UNIQUE_MS)
    return rejected('It was first sent more than 23 hours ago. Check in Stripe whether it was counted.')
  const { customerId = (customer: string | undefined) => customer } = options
  let customer: string | null | undefined
  try {
    customer = await customerId(event.customer, event)
  } catch (cause) {
    return { type: 'retry', reason: `customerId failed: ${messageOf(cause)}`, stop: false }
  }
  if (customer === null) return { type: 'sent' }
  if (customer === undefined || !CUSTOMER_ID.test(customer))
    return rejected('customerId returned no id of a Stripe customer, such as cus_123.')
  return post(bodyOf(event, customer, options, now), options, signal)
}

function rejected(reason: string): SendResult {
  return { type: 'rejected', reason }
}

function bodyOf(
  { id, at, billedNanoUsd }: BillingEvent,
  customer: string,
  {
    eventName,
    payloadKeys: { customer: customerKey = 'stripe_customer_id', value = 'value' } = {},
  }: StripeMeterOptions,
  now: number,
): string {
  return new URLSearchParams({
    event_name: eventName,
    identifier: id,
    // A timestamp may be in the future of Stripe's clock by at most 5 minutes.
    timestamp: String(Math.floor(Math.min(at, now) / 1000)),
    [`payload[${customerKey}]`]: customer,
    [`payload[${value}]`]: String(billedNanoUsd),
  }).toString()
}

async function post(body: string, options: StripeMeterOptions, signal: AbortSignal): Promise<SendResult> {
  const {
    apiKey,
    baseUrl = 'https://api.stripe.com',
    timeoutMs = DEFAULT_TIMEOUT_MS,
    fetch = globalThis.fetch,
  } = options
  try {
    const response = await fetch(`${baseUrl}/v1/billing/meter_events`, {
      method: 'POST',
      headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/x-www-form-urlencoded' },
      body,
      redirect: 'manual',
      signal: AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]),
    })
    return resultOf(response.status, await response.text())
  } catch (cause) {
    return { type: 'retry', reason: `Stripe could not be reached: ${messageOf(cause)}`, stop: true }
  }
}

/** Statuses that say nothing about the event itself. 401 and 403: the key must be corrected. 409: concurrent requests. */
const TEMPORARY: ReadonlySet<number> = new Set([401, 403, 408, 409, 425, 429])

function resultOf(status: number, body: string): SendResult {
  if (status >= 200 && status < 300) return { type: 'sent' }
  const message = stripeMessage(body)
  // An earlier attempt has been recorded.
  if (status === 400 && DUPLICATE.test(message)) return { type: 'sent' }
  const reason = `Stripe answered with status ${status}${message === '' ? '' : `: ${message}`}`
  if (status >= 400 && status < 500 && !TEMPORARY.has(status)) return { type: 'rejected', reason }
  return { type: 'retry', reason, stop: true }
}

/** Messages of Stripe may contain a part of the key. */
const KEY = /\b[rs]k_\S+/g

function stripeMessage(body: string): string {
  const parsed = parseJson(body)
  const error = isJsonObject(parsed) ? parsed['error'] : undefined
  const message = isJsonObject(error) ? error['message'] : undefined
  return typeof message === 'string' ? message.replace(KEY, '***').slice(0, MAX_MESSAGE_LENGTH) : ''
}

function messageOf(cause: unknown): string {
  return (cause instanceof Error ? cause.message : String(cause)).slice(0, MAX_MESSAGE_LENGTH)
}
