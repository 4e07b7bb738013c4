import { reductionPercent, savings, type Bill } from '../billing/bill.ts'
import type { CacheHit } from '../cache/find-answer.ts'
import type { CacheMiss } from '../cache/cache-miss.ts'
import type { JsonObject } from '../core/json.ts'
import { nano, toDollars } from '../core/money.ts'
import { describeFailure } from '../formats/failures.ts'
import type { Forecast, Standing } from '../governance/forecast.ts'
import type { TierVerdict } from '../savings/tier.ts'
import { expectedBill } from './charge.ts'
import { isThread } from './plan.ts'
import type { Planned } from './exchange.ts'

/** What the cache said; undefined where it was not asked. */
export type CacheResult = CacheHit | CacheMiss | undefined

export interface Seen {
  readonly forecast: Forecast
  readonly found: CacheResult
  readonly hasCache: boolean
}

/** A planned request as the caller reads it. */
export function describe(planned: Planned, { forecast, found, hasCache }: Seen): JsonObject {
  const { resolved, margin, plan: planning } = planned
  const bill = expectedBill(planned)
  return {
    object: 'svc.explanation',
    model: resolved.name,
    would_be: forecast.refused === undefined ? (planning.kind === 'replay' ? 'replayed' : 'asked') : 'refused',
    cache: describeCache(found, hasCache),
    tier: describeTier(planned, bill),
    prompt_cache: { markers: planning.kind === 'replay' ? 0 : (planning.marked?.markers ?? 0) },
    tokens: {
      original: bill.originalTokens,
      optimized: bill.optimizedTokens,
      saved: bill.originalTokens - bill.optimizedTokens,
      reduction_pct: reductionPercent(bill),
      answer: bill.completionTokens,
    },
    cost: {
      theoretical_usd: toDollars(bill.theoretical),
      actual_usd: toDollars(bill.actual),
      billed_usd: toDollars(bill.billed),
      savings_usd: toDollars(savings(bill)),
      estimated: true,
    },
    margin,
    route: resolved.routes.map(({ provider, model }, index) => ({
      provider: provider.name,
      model: model.id,
      role: index === 0 ? 'first' : 'fallback',
    })),
    limits: describeLimits(forecast),
  }
}

function describeCache(found: CacheResult, hasCache: boolean): JsonObject {
  if (!hasCache) return { state: 'off' }
  if (found?.hit !== true) return { state: 'miss' }
  return {
    state: found.similarity === 1 ? 'exact' : 'similar',
    similarity: found.similarity,
    stored_at: new Date(found.storedAt).toISOString(),
  }
}

const TIERS = [5, 2, 3, 4] as const

function describeTier(planned: Planned, bill: Bill): JsonObject {
  const { plan } = planned
  const { rewrite, verdicts } = plan.kind === 'replay' ? { rewrite: undefined, verdicts: [] } : plan.optimized
  const others = TIERS.filter((tier) => !verdicts.some((verdict) => verdict.tier === tier))
  const reason = whyNotLookedAt(planned)
  return {
    chosen: plan.kind === 'replay' ? 1 : (rewrite?.tier ?? null),
    strategy: bill.strategy,
    verdicts: [
      ...verdicts.map(({ tier, outcome, reason: why }: TierVerdict) => ({ tier, outcome, reason: why })),
      ...others.map((tier) => ({ tier, outcome: 'not-looked-at', reason })),
    ],
  }
}

function whyNotLookedAt(planned: Planned): string {
  const { plan, steering } = planned
  if (plan.kind === 'replay') return 'the cache answers'
  if (isThread(planned)) return 'the upstream holds the earlier turns of a thread'
  if (steering.level === 'off') return 'X-Savings-Level is off'
  const { rewrite } = plan.optimized
  return rewrite === undefined ? 'the prompt is far below every threshold' : `tier ${rewrite.tier} was chosen before it`
}

function describeLimits({ refused, outputTokens, limits }: Forecast): JsonObject {
  return {
    refused: refused === undefined ? null : describeRefusal(refused),
    answer_tokens: outputTokens,
    in_force: limits.map(describeLimit),
  }
}

function describeRefusal(refused: NonNullable<Forecast['refused']>): JsonObject {
  const { status, type, code, message, retryAfterSeconds } = describeFailure(refused)
  return { status, type, code: code ?? null, message, retry_after: retryAfterSeconds ?? null }
}

/** Requests and tokens are numbers of them, budgets are dollars. */
function describeLimit({ limit, left, takes }: Standing): JsonObject {
  const amount = limit.kind === 'budget' ? (value: number): number => toDollars(nano(value)) : (value: number) => value
  return {
    kind: limit.kind,
    name: limit.label,
    window: limit.every,
    limit: amount(limit.max),
    left: amount(left),
    takes: amount(takes),
    resets_at: new Date(limit.period.end).toISOString(),
  }
}
