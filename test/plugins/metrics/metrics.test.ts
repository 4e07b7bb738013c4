import { describe, expect, it } from 'vitest'
import { toNanoUsd } from '../../../src/core/money.ts'
import { Histogram, Metrics, RecentRate } from '../../../src/plugins/metrics/metrics.ts'
import { writePrometheus } from '../../../src/plugins/metrics/prometheus.ts'
import { fc } from '../../support/properties.ts'
import { bill, finished, START, unanswered } from '../../support/finished.ts'

describe('the metrics', () => {
  it('are zero at the start', () => {
    const metrics = new Metrics(START)
    expect(metrics.summary(START)).toEqual({
      optimizer: {
        requestsTotal: 0,
        requestsPerSecond: 0,
        errorRate: 0,
        latencyP50Ms: 0,
        latencyP95Ms: 0,
        latencyP99Ms: 0,
      },
      optimization: {
        tier1CacheHits: 0,
        tier2VanishingContext: 0,
        tier3Rlm: 0,
        tier4FamilyLocked: 0,
        tier5SavingsSlider: 0,
        totalSavingsUsd: 0,
      },
      billing: { totalCostUsd: 0, theoreticalCostUsd: 0, totalBilledUsd: 0, savingsRatio: 0 },
      shadow: {
        droppedTrials: 0,
        tiers: [2, 3, 4, 5].map((tier) => ({
          tier,
          trials: 0,
          measuredTrials: 0,
          facts: 0,
          lostFacts: 0,
          keptShare: 1,
        })),
      },
    })
    expect(metrics.totals()).toMatchObject({ cacheHits: 0, cacheMisses: 0 })
  })

  it('sum the evidence that shadow trials would have lost, by tier', () => {
    const metrics = new Metrics(START)
    metrics.recordTrial({ tier: 4, evidence: { facts: 10, lost: 1 }, isDropped: false })
    metrics.recordTrial({ tier: 4, evidence: { facts: 30, lost: 2 }, isDropped: false })
    metrics.recordTrial({ tier: 4, evidence: undefined, isDropped: true })
    metrics.recordTrial({ tier: 2, evidence: undefined, isDropped: false })
    const { droppedTrials, tiers } = metrics.summary(START).shadow
    expect(droppedTrials).toBe(1)
    expect(tiers.find(({ tier }) => tier === 4)).toEqual({
      tier: 4,
      trials: 3,
      measuredTrials: 2,
      facts: 40,
      lostFacts: 3,
      keptShare: 0.925,
    })
    const text = writePrometheus(metrics.totals(), { log: 0, audit: 0, settlement: 0 }, 0)
    expect(text).toContain('sluice_shadow_trials_total{tier="2"} 1\n')
    expect(text).toContain('sluice_shadow_trials_measured_total{tier="4"} 2\n')
    expect(text).toContain('sluice_shadow_trials_dropped_total 1\n')
  })

  it('sum requests, tiers, money and cache hits', () => {
    const metrics = new Metrics(START)
    metrics.record(finished({ tier: 5 }))
    metrics.record(finished({ bill: bill({ cache: 'HIT', actual: toNanoUsd(0), billed: toNanoUsd(0) }) }))
    metrics.record(finished())
    metrics.record(unanswered({ status: 502, failure: 'upstream' }))
    metrics.record(unanswered({ status: 429, failure: 'rate-limited' }))
    expect(metrics.summary(START + 2_000)).toMatchObject({
      optimizer: { requestsTotal: 5, requestsPerSecond: 2.5, errorRate: 0.2 },
      optimization: { tier1CacheHits: 1, tier5SavingsSlider: 1, totalSavingsUsd: 0.05 },
      billing: {
        totalCostUsd: 0.01,
        theoreticalCostUsd: 0.06,
        totalBilledUsd: 0.06,
        savingsRatio: 0.833333,
      },
    })
    expect(metrics.totals()).toMatchObject({ cacheHits: 1, cacheMisses: 2 })
  })

  it('have a fixed size for any requests', () => {
    const metrics = new Metrics(START)
    const size = (): number => JSON.stringify(metrics.totals()).length
    metrics.record(finished())
    const before = size()
    for (let n = 0; n < 9; n += 1) metrics.record(finished({ model: `m${n}`, keyId: `k${n}`, requestId: `r${n}` }))
    expect(size()).toBeLessThan(before + 20)
  })

  it('are written in the format of Prometheus', () => {
    const metrics = new Metrics(START)
    metrics.record(finished({ latencyMs: 100, tier: 2, model: 'x"\n# evil' }))
    const text = writePrometheus(metrics.totals(), { log: 3, audit: 0, settlement: 2 }, 5)
    const line = /^(# (HELP|TYPE) sluice_\w+ .+|sluice_\w+(\{\w+="[\w.]+"\})? -?\d+(\.\d+)?(e[+-]\d+)?)$/
    const lines = text.split('\n')
    expect(lines.pop()).toBe('')
    for (const one of lines) expect(one).toMatch(line)
    expect(lines).toContain('sluice_requests_total{outcome="answered"} 1')
    expect(lines).toContain('sluice_tier_requests_total{tier="2"} 1')
    expect(lines).toContain('sluice_cost_dollars_total{kind="billed"} 0.03')
    expect(lines).toContain('sluice_dropped_records_total{sink="log"} 3')
    expect(lines).toContain('sluice_dropped_records_total{sink="settlement"} 2')
    expect(lines).toContain('sluice_waiting_settlements 5')
    expect(lines).toContain('sluice_request_duration_seconds_sum 0.1')
    expect(lines).toContain('sluice_request_duration_seconds_count 1')
    const names = lines.filter((one) => one.startsWith('# TYPE')).map((one) => one.split(' ')[2])
    expect(new Set(names).size).toBe(names.length)
  })
})

describe('the histogram', () => {
  const latency = fc.double({ min: 0.001, max: 3_600_000, noNaN: true })

  it('returns percentiles with an error of at most 1 %', () => {
    fc.assert(
      fc.property(
        fc.array(latency, { minLength: 1, maxLength: 200 }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        (values, quantile) => {
          const histogram = new Histogram()
          for (const value of values) histogram.record(value)
          const exact = values.toSorted((a, b) => a - b)[Math.max(0, Math.ceil(quantile * values.length) - 1)]!
          expect(Math.abs(histogram.quantile(quantile) - exact)).toBeLessThanOrEqual(exact * 0.010_000_1)
        },
      ),
    )
  })

  it('counts invalid values in the first or the last bucket', () => {
    const histogram = new Histogram()
    for (const value of [Number.NaN, -5, 0, Infinity, 1e300]) histogram.record(value)
    expect(histogram.count).toBe(5)
    expect(histogram.quantile(0.5)).toBe(0)
    expect(histogram.quantile(1)).toBeGreaterThan(86_400_000)
  })
})

describe('the recent rate', () => {
  it('counts events of the last minute only', () => {
    const rate = new RecentRate(START)
    for (let n = 0; n < 120; n += 1) rate.count(START + n * 1000)
    expect(rate.perSecond(START + 119_000)).toBe(1)
    expect(rate.perSecond(START + 149_000)).toBe(0.5)
    expect(rate.perSecond(START + 1_000_000)).toBe(0)
  })

  it('is finite and not negative when the clock is set back', () => {
    const rate = new RecentRate(START)
    rate.count(START)
    rate.count(START - 3_600_000)
    for (const now of [START - 3_600_000, START, START + 30_000, -5_000]) {
      const found = rate.perSecond(now)
      expect(found).toBeGreaterThanOrEqual(0)
      expect(found).toBeLessThanOrEqual(2)
    }
  })
})
