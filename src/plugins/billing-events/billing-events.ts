import { checkOptions, expects, functionCheck, integerFrom, optionsOf } from '../../core/check-options.ts'
import type { MaybePromise } from '../../core/async.ts'
import type { DeliveryOptions, DeliveryResult, FailedDelivery, Plugin } from '../../kernel/plugin.ts'
import { type BillingEvent, billingEventOf, parseBillingEvent } from './billing-event.ts'

/**
 * Delivers events to a billing system. Returns which of them were not delivered. If it throws, none was. Events with an id
 * that was delivered before must not count again.
 */
export type SendBillingEvents = (
  events: readonly BillingEvent[],
  delivery: DeliveryOptions,
) => MaybePromise<DeliveryResult | void>

/** Options for `billingEvents()`. */
export interface BillingEventsOptions {
  readonly send: SendBillingEvents
  /** Name of the plugin, by which the store knows the events. Do not change it while events wait. @default 'billing' */
  readonly name?: string
  readonly batch?: {
    /** 1 to 1,000. @default 100 */
    readonly maxEvents?: number
    /** Time in which events are collected, in milliseconds, at most 60,000. @default 1,000 */
    readonly delayMs?: number
  }
  /** Maximum time of a call of `send`, in milliseconds, at most 50,000. @default 10,000 */
  readonly timeoutMs?: number
  /** An event whose delivery has failed as long becomes a dead letter. In milliseconds. @default 259,200,000 (3 days) */
  readonly giveUpAfterMs?: number
  /** Maximum number of events in the store, delivered ones included. @default 100,000 */
  readonly maxStored?: number
}

const checkBillingEvents = optionsOf(
  {
    send: functionCheck('send(events)'),
    name: expects('a string', (value) => typeof value === 'string'),
    batch: optionsOf({ maxEvents: integerFrom(1, 1_000), delayMs: integerFrom(0, 60_000, 'milliseconds') }),
    timeoutMs: integerFrom(1, 50_000, 'milliseconds'),
    giveUpAfterMs: integerFrom(0, Number.MAX_SAFE_INTEGER, 'milliseconds'),
    maxStored: integerFrom(8),
  },
  ['send'],
  'an object with send',
)

/**
 * Sends one event for each settled request to a billing system: at least once, in the order of settlement for each
 * customer, with the id of the request. The event is stored in the transaction that settles the request, so neither can
 * exist without the other. See docs/guides/invoice-from-the-bill.md.
 *
 * @example
 * const billing = billingEvents({
 *   send: async (events) => {
 *     for (const { id, customer, billedNanoUsd } of events)
 *       await db.query('INSERT INTO charges VALUES ($1, $2, $3) ON CONFLICT DO NOTHING', [id, customer, billedNanoUsd])
 *   },
 * })
 * const gateway = createGateway({ providers: [openai()], store, plugins: [billing] })
 */
export function billingEvents(options: BillingEventsOptions): Plugin {
  checkOptions('billingEvents', options, checkBillingEvents)
  const { send, name = 'billing', batch = {}, timeoutMs, giveUpAfterMs, maxStored } = options
  const { maxEvents, delayMs } = batch
  return {
    name,
    outbox: {
      record: (request) => JSON.stringify(billingEventOf(request)),
      deliver: async (records, delivery) => {
        const unreadable: FailedDelivery[] = []
        const events: BillingEvent[] = []
        for (const { id, value } of records) {
          const event = parseBillingEvent(value)
          if (event === undefined) unreadable.push({ id, reason: 'The stored event has an unknown form.' })
          else events.push(event)
        }
        const result = (events.length === 0 ? undefined : await send(events, delivery)) ?? {}
        return { ...result, rejected: [...unreadable, ...(result.rejected ?? [])] }
      },
      ...(maxEvents !== undefined && { maxRecords: maxEvents }),
      ...(delayMs !== undefined && { delayMs }),
      ...(timeoutMs !== undefined && { timeoutMs }),
      ...(giveUpAfterMs !== undefined && { giveUpAfterMs }),
      ...(maxStored !== undefined && { maxStored }),
    },
  }
}
