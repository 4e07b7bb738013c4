import type { Endpoint } from '../../http/router.ts'
import { type AdminOptions, createGate } from '../../kernel/admin-access.ts'
import type { Handler } from '../../kernel/call.ts'
import type { Services } from '../../kernel/services.ts'
import { toWire } from '../../core/field-names.ts'
import { toDollars, toNanoUsd } from '../../core/money.ts'
import { sendJson } from '../../kernel/response-headers.ts'
import type { MetricsSummary, MetricsTotals } from './metrics.ts'
import { noStoreHeaders } from '../../kernel/endpoint-responses.ts'

/** Cache lookups of this gateway since its creation. */
export interface CacheMetrics {
  /** Hits as a fraction of all lookups, from 0 to 1. 0 before the first lookup. */
  readonly hitRate: number
  readonly totalRequests: number
  readonly cacheHits: number
  readonly cacheMisses: number
}

/** The metrics of this gateway since its creation. */
export interface MetricsReports {
  /** Returns the request counts, the tiers and the costs. */
  summary(): MetricsSummary
  cache(): CacheMetrics
  /** Returns the metrics in the text format of Prometheus. */
  prometheus(): Promise<string>
}

const PROMETHEUS_CONTENT_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

export function metricsEndpoints(
  reports: MetricsReports,
  admin: AdminOptions | undefined,
  services: Services,
): readonly Endpoint<Handler>[] {
  const { requireAdmin, respondWith } = createGate(admin, services)
  return [
    { method: 'GET', path: '/metrics', handle: requireAdmin(metrics(reports)) },
    { method: 'GET', path: '/metrics/cache', handle: respondWith(async () => Object(toWire(reports.cache()))) },
  ]
}

function metrics(reports: MetricsReports): Handler {
  return async (call) => {
    const headers = { ...noStoreHeaders(call), vary: 'Accept' }
    if (!prefersText(call.request.header('accept') ?? '')) {
      return sendJson(call.sink, 200, headers, JSON.stringify(toWire(reports.summary())))
    }
    call.sink.send(200, { ...headers, 'content-type': PROMETHEUS_CONTENT_TYPE }, await reports.prometheus())
  }
}

/** Scrapers do not accept JSON, whereas JSON clients often accept plain text as well. */
function prefersText(accept: string): boolean {
  const acceptedTypes = accept.toLowerCase()
  return !acceptedTypes.includes('application/json') && /text\/plain|openmetrics/.test(acceptedTypes)
}

export interface Drops {
  readonly log: number
  readonly audit: number
  /** The audit record of a dropped settlement is lost too, but not counted in `audit`. */
  readonly settlement: number
}

const QUANTILES = [0.5, 0.95, 0.99] as const

export function writePrometheus(totals: MetricsTotals, drops: Drops, waitingSettlements: number): string {
  const { theoretical, actual, billed } = totals
  const costs = Object.entries({ theoretical, actual, billed })
  const cache = { hit: totals.cacheHits, miss: totals.cacheMisses }
  return [
    ...counterLines('sluice_requests_total', 'Finished requests by outcome.', 'outcome', totals.outcomes),
    ...counterLines('sluice_tier_requests_total', 'Requests that a tier served or rewrote.', 'tier', totals.tiers),
    ...counterLines(
      'sluice_cache_requests_total',
      'Answers from the cache (hit) and from upstreams (miss).',
      'result',
      cache,
    ),
    ...counterLines(
      'sluice_cost_dollars_total',
      'Dollars at list price, paid to upstreams, and billed.',
      'kind',
      Object.fromEntries(costs.map(([kind, amount]) => [kind, toDollars(toNanoUsd(amount))])),
    ),
    ...shadowLines(totals),
    ...counterLines('sluice_dropped_records_total', 'Records that their sink did not accept.', 'sink', { ...drops }),
    '# HELP sluice_waiting_settlements Settlements that the store has not accepted yet. They are retried.',
    '# TYPE sluice_waiting_settlements gauge',
    `sluice_waiting_settlements ${waitingSettlements}`,
    ...latencyLines(totals),
    '',
  ].join('\n')
}

function shadowLines({ shadow, droppedTrials }: MetricsTotals): string[] {
  const byTier = (field: keyof MetricsTotals['shadow'][2]): Record<string, number> =>
    Object.fromEntries(Object.entries(shadow).map(([tier, counts]) => [tier, counts[field]]))
  const [trials, facts] = ['sluice_shadow_trials', 'sluice_shadow_facts']
  return [
    ...counterLines(`${trials}_total`, 'Shadow trials that would have shortened a prompt.', 'tier', byTier('trials')),
    ...counterLines(`${trials}_measured_total`, 'Those whose response was compared.', 'tier', byTier('measuredTrials')),
    ...counterLines(`${facts}_total`, 'Facts of answers that the prompts contain.', 'tier', byTier('facts')),
    ...counterLines(`${facts}_lost_total`, 'Those that the shortened prompts lack.', 'tier', byTier('lostFacts')),
    `# HELP ${trials}_dropped_total Shadow trials whose answer was not compared, because of too much work.`,
    `# TYPE ${trials}_dropped_total counter`,
    `${trials}_dropped_total ${droppedTrials}`,
  ]
}

function counterLines(name: string, help: string, label: string, values: Readonly<Record<string, number>>): string[] {
  const lines = Object.entries(values).map(([value, count]) => `${name}{${label}="${value}"} ${count}`)
  return [`# HELP ${name} ${help}`, `# TYPE ${name} counter`, ...lines]
}

function latencyLines({ latencies, latencySum }: MetricsTotals): string[] {
  const name = 'sluice_request_duration_seconds'
  return [
    `# HELP ${name} Time from the arrival of a request to its end.`,
    `# TYPE ${name} summary`,
    ...QUANTILES.map((quantile) => `${name}{quantile="${quantile}"} ${latencies.quantile(quantile) / 1000}`),
    `${name}_sum ${latencySum / 1000}`,
    `${name}_count ${latencies.count}`,
  ]
}
