import type { CacheHit } from '../cache/find-answer.ts'
import type { CacheMiss } from '../cache/cache-miss.ts'
import type { CacheQuestion } from '../cache/semantic-cache.ts'
import { createSingleFlight } from '../cache/single-flight.ts'
import { nano, toDollars, ZERO } from '../core/money.ts'
import type { Forecast, LimitBalance } from '../governance/forecast.ts'
import type { TierVerdict } from '../savings/tier.ts'
import type { Reservation } from '../governance/reservation.ts'
import { baseHeaders, sendJson } from './response.ts'
import { isThread, plan } from './plan.ts'
import { quote, waitForStore } from './reserve.ts'
import type { Parsed, Planned, Reserved } from './exchange.ts'
import type { Services } from './services.ts'
import { type Bill, reductionPercent, savings } from '../billing/bill.ts'
import type { JsonObject } from '../core/json.ts'
import { describeFailure } from '../formats/failures.ts'
import { expectedBill } from './charge.ts'
import type { SmallModel } from '../savings/models.ts'

/**
 * Answers what would happen to a request: its limits, its cache state, its tier, its tokens, its prices and its route.
 * No upstream is called, no limit is charged, and nothing is left in the cache, in the statistics or in what tiers
 * remember.
 */
export async function explain(parsed: Parsed, services: Services): Promise<undefined> {
  await parsed.size.prepare()
  const forecast = await waitForStore(parsed, services.ledger.forecast(parsed.key, quote(parsed, false)), services)
  const dryRun = dryRunOf(services)
  parsed.reservation = takenNothing(forecast)
  const planned = await plan(parsed as Reserved, dryRun.services)
  const body = describe(planned, { forecast, found: dryRun.found(), hasCache: services.memory !== undefined })
  // No settlement follows that could carry the audit record.
  parsed.reservation = undefined
  await services.observers.observeRequest(parsed, { status: 200 })
  sendJson(parsed.sink, 200, baseHeaders(parsed.id, forecast.rate), JSON.stringify(body))
  return undefined
}

function takenNothing({ rate, quote: seen, outputTokens }: Forecast): Reservation {
  return {
    isReserved: false,
    rate,
    quote: seen,
    outputTokens,
    settle: () => Promise.resolve(),
    settlement: () => ({ reservationId: '', charges: [], tallies: [] }),
  }
}

/** The same services, of which nothing is used up: the stage that plans runs on them as it always does. */
function dryRunOf(services: Services): { readonly services: Services; readonly found: () => CacheResult } {
  const { memory } = services
  let found: CacheResult
  const lookUp = async (question: CacheQuestion): Promise<CacheHit | CacheMiss> => {
    const seen = await (memory?.cache ?? { peek: nothingFound }).peek(question)
    found = seen
    return seen.hit ? seen : { hit: false, spent: ZERO, store: () => false, becameHit: () => {} }
  }
  return {
    services: {
      ...services,
      ...(memory !== undefined && {
        memory: { cache: { ...memory.cache, lookUp }, singleFlight: createSingleFlight() },
      }),
      ...services.dryRun(),
      smallModel: (route) => standIn(services.smallModel(route), services),
    },
    found: () => found,
  }
}

async function nothingFound(): Promise<CacheMiss> {
  return { hit: false, spent: ZERO, store: () => false, becameHit: () => {} }
}

/** A third of what it reads, at most: about as long as what small models write. */
const SHARE = 3
const CHARACTERS_A_TOKEN = 4

/** Costs what the small model costs and says something of the length that it would say. */
function standIn(small: SmallModel | undefined, { meter }: Services): SmallModel | undefined {
  if (small === undefined) return undefined
  return {
    name: small.name,
    price: small.price,
    ask: async ({ instruction, text, maxTokens }) => {
      const said = text.slice(0, Math.min(text.length / SHARE, maxTokens * CHARACTERS_A_TOKEN))
      const { estimate } = meter.tokenizer
      return { text: said, spent: small.price(estimate(instruction) + estimate(text), estimate(said)) }
    },
  }
}

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
function describeLimit({ limit, left, claimed }: LimitBalance): JsonObject {
  const amount = limit.kind === 'budget' ? (value: number): number => toDollars(nano(value)) : (value: number) => value
  return {
    kind: limit.kind,
    name: limit.label,
    window: limit.every,
    limit: amount(limit.max),
    left: amount(left),
    takes: amount(claimed),
    resets_at: new Date(limit.period.end).toISOString(),
  }
}
