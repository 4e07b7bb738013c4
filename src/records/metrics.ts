import type { JsonObject } from '../core/json.ts'
import { nano, toDollars } from '../core/money.ts'
import { endingOf, type Ending, type Finished } from './finished.ts'
import { createHistogram, type HistogramCounts } from './histogram.ts'
import { createRecentRate } from './recent-rate.ts'

/** Aggregates of this process since its start. Their size is fixed: nothing that a caller sends becomes a name. */
export interface Metrics {
  record(finished: Finished): void
  /** `GET /metrics`. */
  summary(now: number): JsonObject
  /** `GET /metrics/cache`. */
  cache(): JsonObject
  /** The raw sums, for the Prometheus text and for adding up several processes. */
  totals(): MetricsTotals
}

export type TierCounts = Readonly<Record<1 | 2 | 3 | 4 | 5, number>>

export interface MetricsTotals {
  readonly endings: Readonly<Record<Ending, number>>
  readonly tiers: TierCounts
  readonly cacheHits: number
  readonly cacheMisses: number
  /** Nano-dollars. */
  readonly theoretical: number
  readonly actual: number
  readonly billed: number
  /** Milliseconds. */
  readonly latencySum: number
  readonly latencies: HistogramCounts
}

export function createMetrics(startedAt: number): Metrics {
  const endings: Record<Ending, number> = { answered: 0, refused: 0, failed: 0, left: 0 }
  const tiers: Record<1 | 2 | 3 | 4 | 5, number> = { 1: 0, 2: 0, 3: 0, 4: 0, 5: 0 }
  const sums = { cacheHits: 0, cacheMisses: 0, theoretical: 0, actual: 0, billed: 0, latencySum: 0 }
  const latencies = createHistogram()
  const rate = createRecentRate(startedAt)

  function record(finished: Finished): void {
    const { bill } = finished
    const tier = bill?.cache === 'HIT' ? 1 : finished.tier
    endings[endingOf(finished)] += 1
    latencies.record(finished.latencyMs)
    sums.latencySum += Math.max(0, finished.latencyMs)
    rate.count(finished.at)
    if (tier !== undefined) tiers[tier] += 1
    if (bill === undefined) return
    if (isAnswer(finished)) sums[bill.cache === 'HIT' ? 'cacheHits' : 'cacheMisses'] += 1
    sums.theoretical += bill.theoretical
    sums.actual += bill.actual
    sums.billed += bill.billed
  }

  function summary(now: number): JsonObject {
    const requests = sumOf(endings)
    return {
      optimizer: {
        requests_total: requests,
        requests_per_second: rate.perSecond(now),
        error_rate: share(endings.failed, requests),
        latency_p50_ms: rounded(latencies.percentile(0.5)),
        latency_p95_ms: rounded(latencies.percentile(0.95)),
        latency_p99_ms: rounded(latencies.percentile(0.99)),
      },
      optimization: {
        tier_1_cache_hits: tiers[1],
        tier_2_vanishing_context: tiers[2],
        tier_3_rlm: tiers[3],
        tier_4_family_locked: tiers[4],
        tier_5_savings_slider: tiers[5],
        total_savings_usd: toDollars(nano(sums.theoretical - sums.actual)),
      },
      billing: {
        total_cost_usd: toDollars(nano(sums.actual)),
        theoretical_cost_usd: toDollars(nano(sums.theoretical)),
        total_billed_usd: toDollars(nano(sums.billed)),
        savings_percentage: share(sums.theoretical - sums.actual, sums.theoretical),
      },
    }
  }

  function cache(): JsonObject {
    const { cacheHits, cacheMisses } = sums
    return {
      hit_rate: share(cacheHits, cacheHits + cacheMisses),
      total_requests: cacheHits + cacheMisses,
      cache_hits: cacheHits,
      cache_misses: cacheMisses,
    }
  }

  const totals = (): MetricsTotals => ({
    endings: { ...endings },
    tiers: { ...tiers },
    ...sums,
    latencies: latencies.counts(),
  })

  return { record, summary, cache, totals }
}

/** A failed request can have a bill, too: what upstreams were paid for it. */
function isAnswer(finished: Finished): boolean {
  const ending = endingOf(finished)
  return ending === 'answered' || ending === 'left'
}

function sumOf(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0)
}

/** A fraction with six digits; 0 of nothing. */
function share(part: number, whole: number): number {
  return whole === 0 ? 0 : Math.round((part / whole) * 1e6) / 1e6
}

/** Milliseconds with three digits. */
function rounded(value: number): number {
  return Math.round(value * 1000) / 1000
}
