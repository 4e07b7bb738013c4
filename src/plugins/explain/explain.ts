import { type Bill, reductionPercent, savings, withoutMargin } from '../../billing/bill.ts'
import type { CacheHit } from '../cache/find-answer.ts'
import type { CacheMiss, CacheQuery } from '../cache/semantic-cache.ts'
import type { JsonObject } from '../../core/json.ts'
import { formatUsd, type NanoUsd, toDollars, toNanoUsd, ZERO } from '../../core/money.ts'
import { describeFailure } from '../../formats/failures.ts'
import type { Forecast, LimitBalance } from '../../governance/balances.ts'
import type { TierVerdict } from '../savings/tier.ts'
import { quote } from '../../kernel/reserve.ts'
import { emptyReservation, expectedBill, maxAmountOf, simulateSmallModel } from '../../kernel/estimate.ts'
import { type Parsed, type Planned, type Reserved, waitForStore } from '../../kernel/exchange.ts'
import { isSentUnchanged, plan } from '../../kernel/plan.ts'

import { baseHeaders, sendJson } from '../../kernel/response-headers.ts'
import type { Services } from '../../kernel/services.ts'

/** Calls no upstream, uses no quota, and does not change the cache, its statistics or the state of the tiers. */
export async function explain(parsed: Parsed, services: Services): Promise<undefined> {
  await parsed.size.prepare()
  const forecast = await waitForStore(parsed, services.ledger.forecast(parsed.key, quote(parsed, false)), services)
  const dryRun = dryRunOf(services)
  parsed.reservation = emptyReservation(forecast)
  const planned = await plan(parsed as Reserved, dryRun.services)
  const cache = services.answerCache === undefined ? { state: 'off' } : describeCache(dryRun.cacheResult())
  const maxAmount = maxAmountOf(planned)
  const bill = expectedBill(planned, services)
  const body = describePlan(planned, { forecast, cache, bill, maxAmount, showsMargin: services.showsMargin })
  // Without a settlement, `observeRequest` appends the audit record itself.
  parsed.reservation = undefined
  await services.observers.observeRequest(parsed, { status: 200 })
  const headers = { ...baseHeaders(parsed.id, forecast.rate), 'x-svc-max-amount': formatUsd(maxAmount) }
  sendJson(parsed.sink, 200, headers, JSON.stringify(body))
  return undefined
}

function dryRunOf(services: Services): { readonly services: Services; readonly cacheResult: () => CacheResult } {
  const { answerCache } = services
  let cacheResult: CacheResult
  const lookUp = async (query: CacheQuery): Promise<CacheHit | CacheMiss> => {
    cacheResult = await answerCache?.cache.peek(query)
    return cacheResult?.hit === true ? cacheResult : MISS_WITHOUT_STORING
  }
  return {
    services: {
      ...services,
      ...(answerCache !== undefined && {
        answerCache: { cache: { ...answerCache.cache, lookUp } },
      }),
      ...services.dryRun(),
      smallModel: (route) => simulateSmallModel(services.smallModel(route), services.meter),
    },
    cacheResult: () => cacheResult,
  }
}

const MISS_WITHOUT_STORING: CacheMiss = { hit: false, spent: ZERO, store: () => false, countAsHit: () => {} }

/** Undefined if the cache was not searched. */
type CacheResult = CacheHit | CacheMiss | undefined

interface Expectation {
  readonly forecast: Forecast
  readonly cache: JsonObject
  readonly bill: Bill
  readonly maxAmount: NanoUsd
  readonly showsMargin: boolean
}

function describePlan(planned: Planned, expectation: Expectation): JsonObject {
  const { resolved, margin, plan } = planned
  const { forecast, cache, bill, maxAmount, showsMargin } = expectation
  const shown = (fields: JsonObject): JsonObject => (showsMargin ? fields : withoutMargin(fields))
  return shown({
    object: 'svc.explanation',
    model: resolved.name,
    would_be: forecast.error === undefined ? (plan.kind === 'replay' ? 'replayed' : 'asked') : 'refused',
    cache,
    tier: describeTier(planned, bill),
    prompt_cache: { markers: plan.kind === 'replay' ? 0 : (plan.markedPrompt?.markerCount ?? 0) },
    tokens: {
      original: bill.originalTokens,
      optimized: bill.optimizedTokens,
      saved: bill.originalTokens - bill.optimizedTokens,
      reduction_pct: reductionPercent(bill),
      answer: bill.completionTokens,
    },
    cost: shown({
      theoretical_usd: toDollars(bill.theoretical),
      actual_usd: toDollars(bill.actual),
      billed_usd: toDollars(bill.billed),
      max_usd: toDollars(maxAmount),
      savings_usd: toDollars(savings(bill)),
      estimated: true,
    }),
    margin,
    route: resolved.routes.map(({ provider, model }, index) => ({
      provider: provider.name,
      model: model.id,
      role: index === 0 ? 'first' : 'fallback',
    })),
    limits: describeLimits(forecast),
  })
}

function describeCache(cacheResult: CacheResult): JsonObject {
  if (cacheResult?.hit !== true) return { state: 'miss' }
  return {
    state: cacheResult.similarity === 1 ? 'exact' : 'similar',
    similarity: cacheResult.similarity,
    stored_at: new Date(cacheResult.storedAt).toISOString(),
  }
}

const TIERS = [5, 2, 3, 4] as const

function describeTier(planned: Planned, bill: Bill): JsonObject {
  const { plan } = planned
  const verdicts: readonly TierVerdict[] = plan.kind === 'replay' ? [] : plan.optimization.verdicts
  const skippedTiers = TIERS.filter((tier) => !verdicts.some((verdict) => verdict.tier === tier))
  const reason = reasonForSkipping(planned)
  return {
    chosen: plan.kind === 'replay' ? 1 : (plan.optimization.rewrite?.tier ?? null),
    strategy: bill.strategy,
    verdicts: [
      ...verdicts.map((verdict) => ({ ...verdict })),
      ...skippedTiers.map((tier) => ({ tier, outcome: 'not-looked-at', reason })),
    ],
  }
}

function reasonForSkipping(planned: Planned): string {
  const { plan, steering } = planned
  if (plan.kind === 'replay') return 'the answer is in the cache'
  if (isSentUnchanged(planned))
    return 'the request is a compaction, runs in the background, or uses a conversation stored by the upstream'
  if (steering.level === 'off') return 'X-Savings-Level is off'
  const { rewrite } = plan.optimization
  if (rewrite !== undefined) return `tier ${rewrite.tier} was chosen first`
  return 'the tier is disabled or runs only as a trial, or the prompt is too small'
}

function describeLimits({ error, outputTokens, limits }: Forecast): JsonObject {
  return {
    refused: error === undefined ? null : describeRejection(error),
    answer_tokens: outputTokens,
    in_force: limits.map(describeLimit),
  }
}

function describeRejection(error: NonNullable<Forecast['error']>): JsonObject {
  const { status, type, code, message, retryAfterSeconds } = describeFailure(error)
  return { status, type, code: code ?? null, message, retry_after: retryAfterSeconds ?? null }
}

/** Budget amounts are in dollars. */
function describeLimit({ limit, remaining, claimedAmount }: LimitBalance): JsonObject {
  const amount =
    limit.kind === 'budget' ? (value: number): number => toDollars(toNanoUsd(value)) : (value: number) => value
  return {
    kind: limit.kind,
    name: limit.label,
    window: limit.every,
    limit: amount(limit.max),
    left: amount(remaining),
    takes: amount(claimedAmount),
    resets_at: new Date(limit.period.end).toISOString(),
  }
}
