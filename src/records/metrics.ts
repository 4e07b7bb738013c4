import { toNanoUsd, toDollars } from '../core/money.ts'
import { type Ending, endingOf, type Finished } from './finished.ts'

/** Request counts, tier counts and costs of this process since its start, as `GET /metrics` returns them. */
export interface MetricsSummary {
  readonly optimizer: {
    readonly requestsTotal: number
    /** Average over the last minute. */
    readonly requestsPerSecond: number
    /** Failed requests as a fraction of all requests, 0 to 1. */
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
    /** Amount paid to upstreams. */
    readonly totalCostUsd: number
    /** Cost at list price, without optimization. */
    readonly theoreticalCostUsd: number
    readonly totalBilledUsd: number
    /** 1 minus `totalCostUsd` divided by `theoreticalCostUsd`. Negative if optimization increased the cost. */
    readonly savingsRatio: number
  }
}

/** Aggregates of this process since its start, in constant memory. */
export interface Metrics {
  record(finished: Finished): void
  summary(now: number): MetricsSummary
  /** Returns sums that can be added up across processes. */
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
    if (wasAnswered(finished)) sums[bill.cache === 'HIT' ? 'cacheHits' : 'cacheMisses'] += 1
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
        errorRate: fraction(endings.failed, requests),
        latencyP50Ms: rounded(latencies.quantile(0.5)),
        latencyP95Ms: rounded(latencies.quantile(0.95)),
        latencyP99Ms: rounded(latencies.quantile(0.99)),
      },
      optimization: {
        tier1CacheHits: tiers[1],
        tier2VanishingContext: tiers[2],
        tier3Rlm: tiers[3],
        tier4FamilyLocked: tiers[4],
        tier5SavingsSlider: tiers[5],
        totalSavingsUsd: toDollars(toNanoUsd(sums.theoretical - sums.actual)),
      },
      billing: {
        totalCostUsd: toDollars(toNanoUsd(sums.actual)),
        theoreticalCostUsd: toDollars(toNanoUsd(sums.theoretical)),
        totalBilledUsd: toDollars(toNanoUsd(sums.billed)),
        savingsRatio: fraction(sums.theoretical - sums.actual, sums.theoretical),
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

/** A failed request can also have a bill, because of its upstream calls. */
function wasAnswered(finished: Finished): boolean {
  const ending = endingOf(finished)
  return ending === 'answered' || ending === 'left'
}

function sumOf(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0)
}

/** Rounds to six fraction digits. Returns 0 if `total` is 0. */
function fraction(part: number, total: number): number {
  return total === 0 ? 0 : Math.round((part / total) * 1e6) / 1e6
}

function rounded(value: number): number {
  return Math.round(value * 1000) / 1000
}

/**
 * Counts values in buckets whose bounds grow by a constant factor, so that percentiles have a relative error of at most
 * 1%.
 */
export interface Histogram {
  record(value: number): void
  /** Returns the value at a quantile (0 to 1), or 0 without values. */
  quantile(probability: number): number
  merge(other: HistogramCounts): void
  counts(): HistogramCounts
}

export type HistogramCounts = readonly (readonly [number, number])[]

const RELATIVE_ERROR = 0.01
const FACTOR = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
const LOG_FACTOR = Math.log(FACTOR)
/** Upper bound of the first bucket in milliseconds. Its values count as 0. */
const FIRST_BOUND_MS = 1e-4
/** Number of buckets. The last bucket, for values of more than a day in milliseconds, has no upper bound. */
const BUCKETS = 1_400

export function createHistogram(): Histogram {
  const counts = new Float64Array(BUCKETS)
  let total = 0

  function addTo(index: number, count: number): void {
    counts[index] = (counts[index] ?? 0) + count
    total += count
  }

  function quantile(probability: number): number {
    if (total === 0) return 0
    const rank = Math.max(1, Math.ceil(Math.min(1, probability) * total))
    let seen = 0
    for (const [index, count] of counts.entries()) {
      seen += count
      if (seen >= rank) return valueOf(index)
    }
    return valueOf(BUCKETS - 1)
  }

  function merge(other: HistogramCounts): void {
    for (const [index, count] of other) {
      if (Number.isInteger(index) && index >= 0 && index < BUCKETS && count > 0) addTo(index, count)
    }
  }

  return {
    record: (value) => addTo(bucketOf(value), 1),
    quantile,
    merge,
    counts: () => [...counts.entries()].filter(([, count]) => count > 0),
  }
}

function bucketOf(value: number): number {
  if (!(value > FIRST_BOUND_MS)) return 0
  return Math.min(BUCKETS - 1, Math.ceil(Math.log(value / FIRST_BOUND_MS) / LOG_FACTOR))
}

/** Returns the value with the same relative distance from both bounds of the bucket. */
function valueOf(index: number): number {
  return index === 0 ? 0 : (FIRST_BOUND_MS * FACTOR ** index * 2) / (FACTOR + 1)
}

export interface RecentRate {
  count(at: number): void
  /**
   * Returns events per second over the last minute, or since the start if that is more recent. Rounded to three
   * fraction digits.
   */
  perSecond(now: number): number
}

const WINDOW_SECONDS = 60

/** Counts events in a ring buffer with one count per second. */
export function createRecentRate(startedAt: number): RecentRate {
  const counts = new Float64Array(WINDOW_SECONDS)
  /** The second that each count belongs to. */
  const seconds = new Float64Array(WINDOW_SECONDS).fill(-1)

  function count(at: number): void {
    const second = Math.floor(at / 1000)
    const slot = ((second % WINDOW_SECONDS) + WINDOW_SECONDS) % WINDOW_SECONDS
    if (seconds[slot] !== second) {
      seconds[slot] = second
      counts[slot] = 0
    }
    counts[slot] = (counts[slot] ?? 0) + 1
  }

  function perSecond(now: number): number {
    const currentSecond = Math.floor(now / 1000)
    const recent = counts.filter((_, slot) => {
      const second = seconds[slot] ?? -1
      return second > currentSecond - WINDOW_SECONDS && second <= currentSecond
    })
    const elapsed = Math.min(WINDOW_SECONDS, Math.max(1, (now - startedAt) / 1000))
    return Math.round((recent.reduce((sum, value) => sum + value, 0) / elapsed) * 1000) / 1000
  }

  return { count, perSecond }
}
