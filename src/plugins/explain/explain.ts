import type { LimitWindow } from '../../governance/limits.ts'
import { type Bill, reductionPercent, savings, withoutMargin } from '../../billing/bill.ts'
import type { JsonObject } from '../../core/json.ts'
import { formatUsd, type NanoUsd, toDollars, toNanoUsd } from '../../core/money.ts'
import { describeFailure } from '../../formats/failures.ts'
import type { Forecast, LimitBalance } from '../../governance/balances.ts'
import { quote } from '../../kernel/reserve.ts'
import { expectedBill, maxAmountOf } from '../../kernel/estimate.ts'
import { type Parsed, type Plan, type Planned } from '../../kernel/exchange.ts'
import { isSentUnchanged, plan } from '../../kernel/plan.ts'

import { baseHeaders, sendJson } from '../../kernel/response-headers.ts'
import type { Services } from '../../kernel/services.ts'
import { waitForStore } from '../../kernel/wait-for-store.ts'
import { observeEnd } from '../../kernel/observe-end.ts'

/** Calls no upstream, uses no quota, and does not change the cache, its statistics or the state of the tiers. */
export async function explain(received: Parsed, services: Services, hasCache: boolean): Promise<false> {
  for (const changePrompt of services.hooks.changePrompt) await changePrompt(received, services)
  received.isDryRun = true
  await received.size.prepareEstimate()
  const forecasting = services.ledger.forecast(received.caller, quote(received, false))
  const forecast = await waitForStore(received, forecasting, services)
  const reserved = Object.assign(received, { grant: forecast })
  const planned = Object.assign(reserved, await plan(reserved, services))
  const maxAmount = maxAmountOf(planned)
  const bill = expectedBill(planned, services)
  const { showsMargin } = services
  const body = describePlan(planned, { forecast, hasCache, bill, maxAmount, showsMargin })
  await observeEnd(planned, { status: 200 }, services)
  const headers = { ...baseHeaders(planned.id, forecast.rate), 'x-svc-max-amount': formatUsd(maxAmount) }
  sendJson(planned.sink, 200, headers, JSON.stringify(body))
  return false
}

interface Expectation {
  readonly forecast: Forecast
  readonly hasCache: boolean
  readonly bill: Bill
  readonly maxAmount: NanoUsd
  readonly showsMargin: boolean
}

function describePlan(planned: Planned, expectation: Expectation): JsonObject {
  const { resolved, margin, plan } = planned
  const { forecast, hasCache, bill, maxAmount, showsMargin } = expectation
  const shown = (fields: JsonObject): JsonObject => (showsMargin ? fields : withoutMargin(fields))
  return shown({
    object: 'svc.explanation',
    model: resolved.name,
    would_be: forecast.error === undefined ? (plan.kind === 'replay' ? 'replayed' : 'asked') : 'refused',
    cache: hasCache ? describeCache(plan) : { state: 'off' },
    tier: describeTier(planned, bill),
    prompt_cache: { markers: plan.kind === 'replay' ? 0 : (plan.markers?.count ?? 0) },
    tokens: {
      original: bill.originalTokens,
      optimized: bill.optimizedTokens,
      saved: bill.originalTokens - bill.optimizedTokens,
      reduction_pct: reductionPercent(bill),
      completion: bill.completionTokens,
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

function describeCache(planned: Plan): JsonObject {
  const stored = planned.kind === 'replay' ? planned.stored : undefined
  if (stored === undefined) return { state: 'miss' }
  return {
    state: stored.similarity === 1 ? 'exact' : 'similar',
    similarity: stored.similarity,
    stored_at: new Date(stored.storedAt).toISOString(),
  }
}

const TIERS = [5, 2, 3, 4] as const

function describeTier(planned: Planned, bill: Bill): JsonObject {
  const { plan } = planned
  const verdicts = plan.kind === 'replay' ? [] : plan.optimization.verdicts
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
  const { plan } = planned
  if (plan.kind === 'replay') return 'the response is in the cache'
  if (isSentUnchanged(planned))
    return 'the request is a compaction, runs in the background, or uses a conversation stored by the upstream'
  const { rewrite, skipReason } = plan.optimization
  if (rewrite !== undefined) return `tier ${rewrite.tier} was chosen first`
  return skipReason ?? 'the tier is disabled or runs only as a trial, or the prompt is too small'
}

function describeLimits({ error, outputTokens, limits }: Forecast): JsonObject {
  return {
    refused: error === undefined ? null : describeRejection(error),
    completion_tokens: outputTokens,
    in_force: limits.map(describeLimit),
  }
}

function describeRejection(error: NonNullable<Forecast['error']>): JsonObject {
  const { status, type, code, message, retryAfterSeconds } = describeFailure(error)
  return { status, type, code: code ?? null, message, retry_after: retryAfterSeconds ?? null }
}

/** Budget amounts are in dollars. */
function describeLimit({ limit, remaining, claimedAmount }: LimitBalance): JsonObject {
  const head = { kind: limit.kind, name: limit.label, window: windowName(limit.window) }
  // Other customers share the limits of a parent.
  if (limit.level === 'parent') return head
  const amount =
    limit.kind === 'budget' ? (value: number): number => toDollars(toNanoUsd(value)) : (value: number) => value
  return {
    ...head,
    limit: amount(limit.max),
    left: amount(remaining),
    takes: amount(claimedAmount),
    resets_at: new Date(limit.period.end).toISOString(),
  }
}

function windowName(window: LimitWindow): string {
  if (window.type === 'idle') return 'session'
  return window.type === 'rolling' ? `rolling ${window.every}` : window.every
}
