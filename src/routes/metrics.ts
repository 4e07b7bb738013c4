import type { JsonObject } from '../core/json.ts'
import { PROMETHEUS_TYPE } from '../records/prometheus.ts'
import { sendJson } from '../pipeline/head.ts'
import { adminHeaders, type Handler } from './endpoint.ts'

/** The metrics in their three shapes: `gateway.metrics`. */
export interface MetricsReports {
  /** `GET /metrics`: requests, tiers and money of this process since its start. */
  summary(): JsonObject
  /** `GET /metrics/cache`. */
  cache(): JsonObject
  /** The metrics in Prometheus' text format. */
  prometheus(): Promise<string>
}

/** GET /metrics: JSON, or Prometheus' text where `Accept` asks for it. */
export function metrics(desk: MetricsReports): Handler {
  return async (call) => {
    const headers = { ...adminHeaders(call), vary: 'Accept' }
    if (!wantsText(call.request.header('accept') ?? '')) {
      return sendJson(call.sink, 200, headers, JSON.stringify(desk.summary()))
    }
    call.sink.whole(200, { ...headers, 'content-type': PROMETHEUS_TYPE }, await desk.prometheus())
  }
}

/** Clients of JSON often take plain text, too; scrapers do not take JSON. */
function wantsText(accept: string): boolean {
  const wanted = accept.toLowerCase()
  return !wanted.includes('application/json') && /text\/plain|openmetrics/.test(wanted)
}
