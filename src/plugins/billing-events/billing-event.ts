import * as z from 'zod/mini'
import { parseJson } from '../../core/json.ts'
import type { SettledRequest } from '../../kernel/plugin.ts'

/** What one request used and is billed. Amounts are integer nano-dollars (billionths of a dollar). */
export interface BillingEvent {
  /** The value of X-Request-Id. The same in each delivery of the event. */
  readonly id: string
  /** When the request ended, in milliseconds since 1970. */
  readonly at: number
  /** The day in UTC on which usage reports count the request, YYYY-MM-DD. */
  readonly day: string
  /** The customer that pays. Absent for requests without a context: bill the owner of the key. */
  readonly customer?: string
  readonly user?: string
  readonly session?: string
  readonly keyId: string
  readonly tags?: Readonly<Record<string, string>>
  /** Empty if the request ended before its model was known. */
  readonly model: string
  /** Absent if no provider has answered, for example for a response of the cache. */
  readonly provider?: string
  /** The HTTP status of the response; 499 if the caller disconnected before. */
  readonly status: number
  /** What to invoice. */
  readonly billedNanoUsd: number
  /** What the request would have cost without the gateway. */
  readonly theoreticalNanoUsd: number
  /** What the vendors charge the operator. */
  readonly actualNanoUsd: number
  /** What the vendor charges the customer, who pays it with a key of its own. */
  readonly vendorChargeNanoUsd?: number
  /** Tokens of the sent prompt and of the completion, and prompt tokens that were not sent. */
  readonly tokens: { readonly prompt: number; readonly completion: number; readonly saved: number }
  readonly isCacheHit: boolean
}

const eventSchema: z.ZodMiniType<BillingEvent> = z.object({
  id: z.string(),
  at: z.number(),
  day: z.string(),
  customer: z.exactOptional(z.string()),
  user: z.exactOptional(z.string()),
  session: z.exactOptional(z.string()),
  keyId: z.string(),
  tags: z.exactOptional(z.record(z.string(), z.string())),
  model: z.string(),
  provider: z.exactOptional(z.string()),
  status: z.number(),
  billedNanoUsd: z.number(),
  theoreticalNanoUsd: z.number(),
  actualNanoUsd: z.number(),
  vendorChargeNanoUsd: z.exactOptional(z.number()),
  tokens: z.object({ prompt: z.number(), completion: z.number(), saved: z.number() }),
  isCacheHit: z.boolean(),
})

export function billingEventOf(request: SettledRequest): BillingEvent {
  const { billed, theoretical, actual, vendorCharge, ...facts } = request
  return {
    ...facts,
    billedNanoUsd: billed,
    theoreticalNanoUsd: theoretical,
    actualNanoUsd: actual,
    ...(vendorCharge !== undefined && { vendorChargeNanoUsd: vendorCharge }),
  }
}

/** Returns undefined for an event of another version. */
export function parseBillingEvent(value: string): BillingEvent | undefined {
  return eventSchema.safeParse(parseJson(value)).data
}
