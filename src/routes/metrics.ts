import type { JsonObject } from '../core/json.ts'
import { PROMETHEUS_TYPE } from '../records/prometheus.ts'
import { jsonResponse } from '../pipeline/head.ts'
import { adminHead, type Call } from './endpoint.ts'

/** The metrics in their three shapes: `gateway.metrics`. */
export interface MetricsReports {
  /** `GET /metrics`: requests, tiers and money of this process since its start. */
  summary(): JsonObject
  /** `GET /metrics/cache`. */
  cache(): JsonObject
  /** The metrics in Prometheus' text format. */
  prometheus(): string
}

/** GET /metrics: JSON, or Prometheus' text where `Accept` asks for it. */
export function metrics(desk: MetricsReports): (call: Call) => Promise<Response> {
  return async (call) => {
    const head = { ...adminHead(call), vary: 'Accept' }
    if (!wantsText(call.request.headers.get('accept') ?? '')) {
      return jsonResponse(200, head, JSON.stringify(desk.summary()))
    }
    return new Response(desk.prometheus(), { status: 200, headers: { ...head, 'content-type': PROMETHEUS_TYPE } })
  }
}

/** GET /metrics/cache. */
export function cacheMetrics(desk: MetricsReports): () => Promise<JsonObject> {
  return async () => desk.cache()
}

/** Clients of JSON often take plain text, too; scrapers do not take JSON. */
function wantsText(accept: string): boolean {
  const wanted = accept.toLowerCase()
  return !wanted.includes('application/json') && /text\/plain|openmetrics/.test(wanted)
}
