import { toWire } from '../core/field-names.ts'
import type { MetricsSummary } from '../records/metrics.ts'
import { PROMETHEUS_TYPE } from '../records/prometheus.ts'
import { sendJson } from '../pipeline/head.ts'
import { adminHeaders, type Handler } from './endpoint.ts'

/** Look-ups in the cache by this process since its start: `GET /metrics/cache` in process. */
export interface CacheMetrics {
  /** Hits as a share of all look-ups, 0 to 1; 0 before the first look-up. */
  readonly hitRate: number
  readonly totalRequests: number
  readonly cacheHits: number
  readonly cacheMisses: number
}

/** The metrics of this process since its start. */
export interface MetricsReports {
  /** Returns requests, tiers and money. */
  summary(): MetricsSummary
  /** Returns the hits and misses of the cache. */
  cache(): CacheMetrics
  /** Returns all metrics in the text format of Prometheus. */
  prometheus(): Promise<string>
}

/** GET /metrics: JSON, or Prometheus' text where `Accept` asks for it. */
export function metrics(reports: MetricsReports): Handler {
  return async (call) => {
    const headers = { ...adminHeaders(call), vary: 'Accept' }
    if (!wantsText(call.request.header('accept') ?? '')) {
      return sendJson(call.sink, 200, headers, JSON.stringify(toWire(reports.summary())))
    }
    call.sink.whole(200, { ...headers, 'content-type': PROMETHEUS_TYPE }, await reports.prometheus())
  }
}

/** Clients of JSON often take plain text, too; scrapers do not take JSON. */
function wantsText(accept: string): boolean {
  const wanted = accept.toLowerCase()
  return !wanted.includes('application/json') && /text\/plain|openmetrics/.test(wanted)
}
