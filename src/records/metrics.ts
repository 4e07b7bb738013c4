import { nano, toDollars } from '../core/money.ts'
import { endingOf, type Ending, type Finished } from './finished.ts'
import { createHistogram, type HistogramCounts } from './histogram.ts'
import { createRecentRate } from './recent-rate.ts'

/** Requests, tiers and money of this process since its start: `GET /metrics` in process. */
export interface MetricsSummary {
  readonly optimizer: {
    readonly requestsTotal: number
    /** Average of the last minute. */
    readonly requestsPerSecond: number
    /** Requests that failed, as a share of all requests, 0 to 1. */
    readonly errorRate: number
    readonly latencyP50Ms: number
    readonly latencyP95Ms: number
    readonly latencyP99Ms: number
  }
  /** Number of requests that each tier served or rewrote. */
  readonly optimization: {
    readonly tier1CacheHits: number
    readonly tier2VanishingContext: number
    readonly tier3Rlm: number
    readonly tier4FamilyLocked: number
    readonly tier5SavingsSlider: number
    readonly totalSavingsUsd: number
  }
  readonly billing: {
    /** Paid to upstreams. */
    readonly totalCostUsd: number
    /** At list price, without optimization. */
    readonly theoreticalCostUsd: number
    readonly totalBilledUsd: number
    /** 1 minus `totalCostUsd` divided by `theoreticalCostUsd`: a fraction, negative when optimization cost more. */
    readonly savingsRatio: number
  }
}

/** Aggregates of this process since its start. Their size is fixed, because no text of a caller becomes a name. */
export interface Metrics {
  record(finished: Finished): void
  summary(now: number): MetricsSummary
  /** Returns the raw sums, for the Prometheus text and for sums over several processes. */
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

  function summary(now: number): MetricsSummary {
    const requests = sumOf(endings)
    return {
      optimizer: {
        requestsTotal: requests,
        requestsPerSecond: rate.perSecond(now),
        errorRate: share(endings.failed, requests),
        latencyP50Ms: rounded(latencies.percentile(0.5)),
        latencyP95Ms: rounded(latencies.percentile(0.95)),
        latencyP99Ms: rounded(latencies.percentile(0.99)),
      },
      optimization: {
        tier1CacheHits: tiers[1],
        tier2VanishingContext: tiers[2],
        tier3Rlm: tiers[3],
        tier4FamilyLocked: tiers[4],
        tier5SavingsSlider: tiers[5],
        totalSavingsUsd: toDollars(nano(sums.theoretical - sums.actual)),
      },
      billing: {
        totalCostUsd: toDollars(nano(sums.actual)),
        theoreticalCostUsd: toDollars(nano(sums.theoretical)),
        totalBilledUsd: toDollars(nano(sums.billed)),
        savingsRatio: share(sums.theoretical - sums.actual, sums.theoretical),
      },
    }
  }

  const totals = (): MetricsTotals => ({
    endings: { ...endings },
    tiers: { ...tiers },
    ...sums,
    latencies: latencies.counts(),
  })

  return { record, summary, totals }
}

/** Returns true for an answered request. A failed request may also have a bill, for its upstream calls. */
function isAnswer(finished: Finished): boolean {
  const ending = endingOf(finished)
  return ending === 'answered' || ending === 'left'
}

function sumOf(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0)
}

/** Returns a fraction with six digits, or 0 if `whole` is 0. */
function share(part: number, whole: number): number {
  return whole === 0 ? 0 : Math.round((part / whole) * 1e6) / 1e6
}

/** Rounds milliseconds to three digits. */
function rounded(value: number): number {
  return Math.round(value * 1000) / 1000
}
