/** What the store keeps of an event. */
import * as z from 'zod/mini'
import type { BudgetEvent } from '../../kernel/plugin.ts'
import { eventSchema } from './budget-check.ts'

/** Exists once for each budget, window and share. */
export interface EventRecord {
  readonly event: BudgetEvent
  /** Milliseconds since 1970. */
  readonly expiresAt: number
  /** Also true for an event that was dropped. */
  readonly isDelivered: boolean
}

export const recordSchema: z.ZodMiniType<EventRecord> = z.object({
  event: eventSchema,
  expiresAt: z.number(),
  isDelivered: z.boolean(),
})

/** An event that at least one plugin has not received. */
export interface Delivery {
  /** Storage key of the record. */
  readonly key: string
  readonly event: BudgetEvent
  readonly attempts: number
  /** When the next attempt may begin, in milliseconds since 1970. After the end of the current one, if there is one. */
  readonly nextAt: number
  /** Names of the plugins that have received the event. */
  readonly done: readonly string[]
}

export const deliverySchema: z.ZodMiniType<Delivery> = z.object({
  key: z.string(),
  event: eventSchema,
  attempts: z.number(),
  nextAt: z.number(),
  done: z.array(z.string()),
})
