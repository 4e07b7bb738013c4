import type { DurationCode } from '../core/period.ts'
import type { Allowance, VirtualKey } from './virtual-key.ts'

/** Names of predefined limits. Plans for chat use windows of an hour, plans for messages windows of a minute. */
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

/** Returns the key's own limits. A limit that is set on the key overrides that of its plan. */
export function limitsOf(key: VirtualKey): LimitPlan {
  const preset = PLAN_NAMES.includes(key.plan as PlanName) ? PLANS[key.plan as PlanName] : {}
  const requests = key.requests ?? preset.requests
  const tokens = key.tokens ?? preset.tokens
  return { ...(requests !== undefined && { requests }), ...(tokens !== undefined && { tokens }) }
}
