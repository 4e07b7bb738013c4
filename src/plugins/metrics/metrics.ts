import { toNanoUsd, toDollars } from '../../core/money.ts'
import { type FinalOutcome, outcomeOf, type FinishedRequest } from '../../kernel/finished-request.ts'

/** Request counts, tier counts and costs of this gateway since its creation. */
export interface MetricsSummary {
  readonly optimizer: {
    readonly requestsTotal: number
    /** Average over the last minute, or since the creation of the gateway if that is more recent. */
    readonly requestsPerSecond: number
    /** Failed requests as a fraction of all requests, 0 to 1. */
    readonly errorRate: number
    readonly latencyP50Ms: number
    readonly latencyP95Ms: number
    readonly latencyP99Ms: number
  }
  /** Number of requests that each tier served or rewrote, and the total savings. */
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
    /** 1 minus `totalCostUsd` / `theoreticalCostUsd`. 0 if the latter is 0. Negative if optimization raised the cost. */
    readonly savingsRatio: number
  }
  /** Trials of the tiers on requests that were sent unchanged. See `SavingsOptions.shadow`. */
  readonly shadow: {
    /** Trials whose evidence was not measured, because too many were waiting or the prompt was too long. */
    readonly droppedTrials: number
    readonly tiers: readonly ShadowTierSummary[]
  }
}

/** The shadow trials of one tier that would have shortened the prompt. */
export interface ShadowTierSummary {
  readonly tier: ShadowTier
  readonly trials: number
  /** Trials whose response was compared with the shortened prompt. */
  readonly measuredTrials: number
  /** Identifiers, numbers and runs of four words in the responses that the received prompts contain. */
  readonly facts: number
  /** Those that the shortened prompts lack. */
  readonly lostFacts: number
  /** 1 minus `lostFacts` / `facts`. 1 if the latter is 0. */
  readonly keptShare: number
}

/** Sums over the shadow trials of one tier. */
export type ShadowTier = 2 | 3 | 4 | 5
type ShadowCounts = Omit<ShadowTierSummary, 'tier' | 'keptShare'>

const SHADOW_TIERS = [2, 3, 4, 5] as const

/** The trial of a tier that would have shortened the prompt. */
export interface ShadowTrial {
  readonly tier: ShadowTier
  readonly evidence: { readonly facts: number; readonly lost: number } | undefined
  readonly isDropped: boolean
}

type TierCounts = Record<1 | 2 | 3 | 4 | 5, number>

export interface MetricsTotals {
  readonly outcomes: Readonly<Record<FinalOutcome, number>>
  readonly tiers: Readonly<TierCounts>
  readonly cacheHits: number
  readonly cacheMisses: number
  /** Nano-dollars. */
  readonly theoretical: number
  readonly actual: number
  readonly billed: number
  /** Milliseconds. */
  readonly latencySum: number
  readonly latencies: Pick<Histogram, 'count' | 'quantile'>
  readonly shadow: Readonly<Record<ShadowTier, ShadowCounts>>
  readonly droppedTrials: number
}

export class Metrics {
  readonly #outcomes: Record<FinalOutcome, number> = { answered: 0, refused: 0, failed: 0, left: 0 }
  readonly #tiers: TierCounts = { 1: 0, 2: 0, 3: 0, 4: 0, 5: 0 }
  readonly #sums = { cacheHits: 0, cacheMisses: 0, theoretical: 0, actual: 0, billed: 0, latencySum: 0 }
  readonly #latencies = new Histogram()
  readonly #shadow: Record<ShadowTier, ShadowCounts> = { 2: NO_TRIALS, 3: NO_TRIALS, 4: NO_TRIALS, 5: NO_TRIALS }
  #droppedTrials = 0
  readonly #rate: RecentRate

  constructor(startedAt: number) {
    this.#rate = new RecentRate(startedAt)
  }

  /** A property, so that it can be passed as a hook. */
  readonly record: (finished: FinishedRequest) => void = (finished) => {
    const { bill, latencyMs } = finished
    const sums = this.#sums
    const outcome = outcomeOf(finished)
    const tier = bill?.cache === 'HIT' ? 1 : finished.tier
    this.#outcomes[outcome] += 1
    this.#latencies.record(latencyMs)
    sums.latencySum += Math.max(0, latencyMs)
    this.#rate.count(finished.at)
    if (tier !== undefined) this.#tiers[tier] += 1
    if (bill === undefined) return
    // A rejected or failed request can also have a bill, because of its upstream calls.
    if (outcome === 'answered' || outcome === 'left') sums[bill.cache === 'HIT' ? 'cacheHits' : 'cacheMisses'] += 1
    sums.theoretical += bill.theoretical
    sums.actual += bill.actual
    sums.billed += bill.billed
  }

  recordTrial({ tier, evidence, isDropped }: ShadowTrial): void {
    const { trials, measuredTrials, facts, lostFacts } = this.#shadow[tier]
    if (isDropped) this.#droppedTrials += 1
    this.#shadow[tier] = {
      trials: trials + 1,
      measuredTrials: measuredTrials + (evidence === undefined ? 0 : 1),
      facts: facts + (evidence?.facts ?? 0),
      lostFacts: lostFacts + (evidence?.lost ?? 0),
    }
  }

  summary(now: number): MetricsSummary {
    const { theoretical, actual, billed } = this.#sums
    const tiers = this.#tiers
    const requests = Object.values(this.#outcomes).reduce((sum, count) => sum + count, 0)
    const latencyMs = (probability: number): number => Math.round(this.#latencies.quantile(probability) * 1000) / 1000
    return {
      optimizer: {
        requestsTotal: requests,
        requestsPerSecond: this.#rate.perSecond(now),
        errorRate: fraction(this.#outcomes.failed, requests),
        latencyP50Ms: latencyMs(0.5),
        latencyP95Ms: latencyMs(0.95),
        latencyP99Ms: latencyMs(0.99),
      },
      optimization: {
        tier1CacheHits: tiers[1],
        tier2VanishingContext: tiers[2],
        tier3Rlm: tiers[3],
        tier4FamilyLocked: tiers[4],
        tier5SavingsSlider: tiers[5],
        totalSavingsUsd: toDollars(toNanoUsd(theoretical - actual)),
      },
      billing: {
        totalCostUsd: toDollars(toNanoUsd(actual)),
        theoreticalCostUsd: toDollars(toNanoUsd(theoretical)),
        totalBilledUsd: toDollars(toNanoUsd(billed)),
        savingsRatio: fraction(theoretical - actual, theoretical),
      },
      shadow: {
        droppedTrials: this.#droppedTrials,
        tiers: SHADOW_TIERS.map((tier) => {
          const counts = this.#shadow[tier]
          return { tier, ...counts, keptShare: fraction(counts.facts - counts.lostFacts, counts.facts, 1) }
        }),
      },
    }
  }

  totals(): MetricsTotals {
    return {
      outcomes: this.#outcomes,
      tiers: this.#tiers,
      ...this.#sums,
      latencies: this.#latencies,
      shadow: this.#shadow,
      droppedTrials: this.#droppedTrials,
    }
  }
}

const NO_TRIALS: ShadowCounts = { trials: 0, measuredTrials: 0, facts: 0, lostFacts: 0 }

function fraction(part: number, total: number, ifEmpty = 0): number {
  return total === 0 ? ifEmpty : Math.round((part / total) * 1e6) / 1e6
}

const RELATIVE_ERROR = 0.01
const FACTOR = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
const LOG_FACTOR = Math.log(FACTOR)
/** Upper bound of the first bucket, in milliseconds. Values in the first bucket count as 0. */
const FIRST_BOUND_MS = 1e-4
/** The last bucket contains all values of more than about 39 hours. */
const BUCKETS = 1_400

/** Bounds grow by a constant factor, so each percentile up to the last bucket has a relative error of at most 1%. */
export class Histogram {
  readonly #counts = new Float64Array(BUCKETS)
  #count = 0

  get count(): number {
    return this.#count
  }

  record(value: number): void {
    const index = bucketOf(value)
    this.#counts[index] = (this.#counts[index] ?? 0) + 1
    this.#count += 1
  }

  quantile(probability: number): number {
    if (this.#count === 0) return 0
    const rank = Math.max(1, Math.ceil(Math.min(1, probability) * this.#count))
    let cumulativeCount = 0
    const index = this.#counts.findIndex((count) => (cumulativeCount += count) >= rank)
    return valueOf(index)
  }
}

function bucketOf(value: number): number {
  if (!(value > FIRST_BOUND_MS)) return 0
  return Math.min(BUCKETS - 1, Math.ceil(Math.log(value / FIRST_BOUND_MS) / LOG_FACTOR))
}

/** Returns the value with the same relative distance from both bounds of the bucket. The first bucket is 0. */
function valueOf(index: number): number {
  return index === 0 ? 0 : (FIRST_BOUND_MS * FACTOR ** index * 2) / (FACTOR + 1)
}

const WINDOW_SECONDS = 60

export class RecentRate {
  readonly #startedAt: number
  readonly #counts = new Float64Array(WINDOW_SECONDS)
  /** The second that each count belongs to. */
  readonly #seconds = new Float64Array(WINDOW_SECONDS).fill(-1)

  constructor(startedAt: number) {
    this.#startedAt = startedAt
  }

  count(at: number): void {
    const second = Math.floor(at / 1000)
    const slot = ((second % WINDOW_SECONDS) + WINDOW_SECONDS) % WINDOW_SECONDS
    if (this.#seconds[slot] !== second) {
      this.#seconds[slot] = second
      this.#counts[slot] = 0
    }
    this.#counts[slot] = (this.#counts[slot] ?? 0) + 1
  }

  perSecond(now: number): number {
    const currentSecond = Math.floor(now / 1000)
    const recent = this.#counts.filter((_, slot) => {
      const second = this.#seconds[slot] ?? -1
      return second > currentSecond - WINDOW_SECONDS && second <= currentSecond
    })
    const elapsedSeconds = Math.min(WINDOW_SECONDS, Math.max(1, (now - this.#startedAt) / 1000))
    return Math.round((recent.reduce((sum, value) => sum + value, 0) / elapsedSeconds) * 1000) / 1000
  }
}
