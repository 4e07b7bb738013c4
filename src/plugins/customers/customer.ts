/** Customers as they are stored. */
import * as z from 'zod/mini'
import { DURATION_CODES } from '../../core/store.ts'
import type { BudgetOptions, CustomerPermissions, RateLimitOptions } from './options.ts'
import type { Payer } from '../../governance/caller.ts'

/** A temporary addition to the budgets of one window. */
export interface BudgetRaise {
  /** In dollars. */
  readonly addUsd: number
  readonly window: (typeof DURATION_CODES)[number]
  /** When it ends, in milliseconds since 1970. */
  readonly until: number
}

export interface Customer {
  readonly id: string
  readonly name: string
  /** The customer that pays as well, such as a team or an organization. */
  readonly parent?: string
  readonly plan?: string
  readonly metadata: Readonly<Record<string, string>>
  /** Replace those of the plan. */
  readonly budgets?: readonly BudgetOptions[]
  readonly rateLimits?: readonly RateLimitOptions[]
  readonly raises: readonly BudgetRaise[]
  /** In addition to those of the plan. */
  readonly permissions: CustomerPermissions
  readonly payer?: Payer
  readonly active: boolean
  /** Milliseconds since 1970. */
  readonly expiresAt?: number
  readonly createdAt: number
  /** New with each change, so that a record never has the text of an earlier one. Absent before the first change. */
  readonly revision?: string
}

const windowFields = {
  window: z.enum(DURATION_CODES),
  rolling: z.exactOptional(z.boolean()),
  models: z.exactOptional(z.array(z.string())),
}

export const customerSchema: z.ZodMiniType<Customer> = z.object({
  id: z.string(),
  name: z.string(),
  parent: z.exactOptional(z.string()),
  plan: z.exactOptional(z.string()),
  metadata: z.record(z.string(), z.string()),
  budgets: z.exactOptional(z.array(z.object({ ...windowFields, limitUsd: z.number() }))),
  rateLimits: z.exactOptional(
    z.array(z.object({ ...windowFields, requests: z.exactOptional(z.number()), tokens: z.exactOptional(z.number()) })),
  ),
  raises: z.array(z.object({ addUsd: z.number(), window: z.enum(DURATION_CODES), until: z.number() })),
  permissions: z.object({
    allowedModels: z.exactOptional(z.array(z.string())),
    maxTokens: z.exactOptional(z.number()),
    disableTools: z.exactOptional(z.boolean()),
  }),
  payer: z.exactOptional(z.enum(['operator', 'customer'])),
  active: z.boolean(),
  expiresAt: z.exactOptional(z.number()),
  createdAt: z.number(),
  revision: z.exactOptional(z.string()),
})

export const CUSTOMER_PREFIX = 'customer:'
