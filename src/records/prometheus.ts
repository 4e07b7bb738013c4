import { toNanoUsd, toDollars } from '../core/money.ts'
import { Histogram, type MetricsTotals } from './metrics.ts'

export const PROMETHEUS_CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

/** Dropped records by sink. */
export interface Drops {
  readonly log: number
  readonly audit: number
  /** Dropped settlements. The audit record of a dropped settlement is lost too, but not counted. */
  readonly settlement: number
}

const QUANTILES = [0.5, 0.95, 0.99] as const

/** Writes the Prometheus text format. */
export function writePrometheus(totals: MetricsTotals, drops: Drops, waitingSettlements: number): string {
  const { theoretical, actual, billed } = totals
  const costs = Object.entries({ theoretical, actual, billed })
  const cache = { hit: totals.cacheHits, miss: totals.cacheMisses }
  return [
    ...counterLines('sluice_requests_total', 'Finished requests by outcome.', 'outcome', totals.outcomes),
    ...counterLines('sluice_tier_requests_total', 'Requests that a savings tier served.', 'tier', totals.tiers),
    ...counterLines('sluice_cache_requests_total', 'Semantic cache lookups by result.', 'result', cache),
    ...counterLines(
      'sluice_cost_dollars_total',
      'Dollars at list price, paid to upstreams, and billed.',
      'kind',
      Object.fromEntries(costs.map(([kind, amount]) => [kind, toDollars(toNanoUsd(amount))])),
    ),
    ...counterLines('sluice_dropped_records_total', 'Records that their sink did not accept.', 'sink', { ...drops }),
    '# HELP sluice_waiting_settlements Settlements that the store has not accepted yet. They are retried.',
    '# TYPE sluice_waiting_settlements gauge',
    `sluice_waiting_settlements ${waitingSettlements}`,
    ...latencyLines(totals),
    '',
  ].join('\n')
}

function counterLines(name: string, help: string, label: string, values: Readonly<Record<string, number>>): string[] {
  const lines = Object.entries(values).map(([value, count]) => `${name}{${label}="${value}"} ${count}`)
  return [`# HELP ${name} ${help}`, `# TYPE ${name} counter`, ...lines]
}

function latencyLines({ latencies, latencySum }: MetricsTotals): string[] {
  const name = 'sluice_request_duration_seconds'
  const histogram = new Histogram()
  histogram.merge(latencies)
  return [
    `# HELP ${name} Time from the arrival of a request to its end.`,
    `# TYPE ${name} summary`,
    ...QUANTILES.map((quantile) => `${name}{quantile="${quantile}"} ${histogram.quantile(quantile) / 1000}`),
    `${name}_sum ${latencySum / 1000}`,
    `${name}_count ${latencies.reduce((sum, [, count]) => sum + count, 0)}`,
  ]
}
