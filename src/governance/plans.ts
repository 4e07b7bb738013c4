import type { DurationCode } from '../core/period.ts'
import type { Allowance, VirtualKey } from './virtual-key.ts'

/** Limits that a key can name: the chat plans count by the hour, the message tiers by the minute. */
export type PlanName =
  | 'free'
  | 'pro'
  | 'enterprise'
  | 'messages-free'
  | 'messages-basic'
  | 'messages-pro'
  | 'messages-enterprise'

/** An absent limit is no limit. */
export interface LimitPlan {
  readonly requests?: Allowance
  readonly tokens?: Allowance
}

const PLANS: Readonly<Record<PlanName, LimitPlan>> = {
  free: plan(100, 100_000, '1h'),
  pro: plan(1_000, 1_000_000, '1h'),
  enterprise: {},
  'messages-free': plan(60, 40_000, '1m'),
  'messages-basic': plan(300, 200_000, '1m'),
  'messages-pro': plan(1_000, 1_000_000, '1m'),
  'messages-enterprise': {},
}

export const PLAN_NAMES: readonly PlanName[] = Object.keys(PLANS) as PlanName[]

function plan(requests: number, tokens: number, every: DurationCode): LimitPlan {
  return { requests: { max: requests, every }, tokens: { max: tokens, every } }
}

/** The key's own limits: what was set on the key itself, else what its plan says. */
export function limitsOf(key: VirtualKey): LimitPlan {
  const preset = PLAN_NAMES.includes(key.plan as PlanName) ? PLANS[key.plan as PlanName] : {}
  const requests = key.requests ?? preset.requests
  const tokens = key.tokens ?? preset.tokens
  return { ...(requests !== undefined && { requests }), ...(tokens !== undefined && { tokens }) }
}
