import { toWire } from '../core/field-names.ts'
import type { ProviderStates, Runtime } from '../core/ports.ts'
import type { Store } from '../core/store.ts'
import { sendJson } from '../pipeline/response.ts'
import type { MetricsSummary } from '../records/metrics.ts'
import { PROMETHEUS_TYPE } from '../records/prometheus.ts'
import { adminHeaders, type Handler } from './endpoint.ts'

type Health = 'healthy' | 'degraded' | 'unhealthy'

const STORE_DEADLINE_MS = 1000

export interface StatusParts {
  readonly store: Store
  readonly providers: () => ProviderStates
  readonly runtime: Pick<Runtime, 'now' | 'after'>
  /** True when requests are served while the store fails. @default false */
  readonly servesWithoutStore?: boolean
}

/**
 * GET /health: 503 when the store is unreachable, `degraded` (200) while a circuit is not closed. With `onStoreFailure:
 * 'allow'` an unreachable store is `degraded`, too. The specification defines the names of the services: optimizer is
 * the waterfall, bifrost the routing to providers, redis the store, mcp_tools the search in stored contexts. The
 * endpoint requires no key. The response contains no names or addresses.
 */
export function health(parts: StatusParts): Handler {
  return async (call) => {
    const store = await answers(parts)
    const routing = Object.values(parts.providers()).every((state) => state === 'healthy')
    const isDegraded = !store || !routing
    const isUnhealthy = !store && !parts.servesWithoutStore
    const status: Health = isUnhealthy ? 'unhealthy' : isDegraded ? 'degraded' : 'healthy'
    const body = {
      status,
      timestamp: new Date(parts.runtime.now()).toISOString(),
      services: {
        optimizer: 'healthy',
        bifrost: routing ? 'healthy' : 'degraded',
        redis: store ? 'healthy' : 'unhealthy',
        mcp_tools: store ? 'healthy' : 'unhealthy',
      },
    }
    sendJson(call.sink, isUnhealthy ? 503 : 200, adminHeaders(call), JSON.stringify(body))
  }
}

/** GET /ready: 200 when requests can be served, 503 when the store or every provider is unavailable. */
export function ready(parts: StatusParts): Handler {
  return async (call) => {
    const store = await answers(parts)
    const states = Object.entries(parts.providers())
    const providers = Object.fromEntries(states.map(([name, state]) => [name, state !== 'away']))
    const routing = Object.values(providers).some(Boolean)
    const isReady = (store || parts.servesWithoutStore) && routing
    const body = { ready: isReady, dependencies: { bifrost: routing, redis: store, providers } }
    sendJson(call.sink, isReady ? 200 : 503, adminHeaders(call), JSON.stringify(body))
  }
}

/** GET /: one line for browsers and for clients that check the address. */
export const greeting: Handler = (call) => {
  const headers = { ...adminHeaders(call), 'content-type': 'text/plain; charset=utf-8' }
  call.sink.whole(200, headers, 'sluice is running. Send requests to /v1 with a virtual key.\n')
}

/** Resolves with true when the store answers in time. */
function answers({ store, runtime }: StatusParts): Promise<boolean> {
  return isTrueWithin(STORE_DEADLINE_MS, () => store.ping().then(() => true), runtime)
}

/** Resolves with true if `decide` returns true in time; with false on any other value, a failure or a timeout. */
export async function isTrueWithin(
  timeoutMs: number,
  decide: () => boolean | Promise<boolean>,
  { after }: Pick<Runtime, 'after'>,
): Promise<boolean> {
  let cancel: () => void = () => {}
  const late = new Promise<boolean>((resolve) => {
    cancel = after(timeoutMs, () => resolve(false))
  })
  try {
    return (await Promise.race([decide(), late])) === true
  } catch {
    return false
  } finally {
    cancel()
  }
}

/** Cache look-ups of this process since its start: `GET /metrics/cache` in process. */
export interface CacheMetrics {
  /** Hits as a share of all look-ups, 0 to 1; 0 before the first look-up. */
  readonly hitRate: number
  readonly totalRequests: number
  readonly cacheHits: number
  readonly cacheMisses: number
}

/** The metrics of this process since its start. */
export interface MetricsReports {
  /** Returns the numbers of requests, the tiers and the costs. */
  summary(): MetricsSummary
  /** Returns the hits and misses of the cache. */
  cache(): CacheMetrics
  /** Returns all metrics in the text format of Prometheus. */
  prometheus(): Promise<string>
}

/** GET /metrics: Sends JSON, or the text format of Prometheus if `Accept` prefers it. */
export function metrics(reports: MetricsReports): Handler {
  return async (call) => {
    const headers = { ...adminHeaders(call), vary: 'Accept' }
    if (!wantsText(call.request.header('accept') ?? '')) {
      return sendJson(call.sink, 200, headers, JSON.stringify(toWire(reports.summary())))
    }
    call.sink.whole(200, { ...headers, 'content-type': PROMETHEUS_TYPE }, await reports.prometheus())
  }
}

/** Returns true for scrapers. They do not accept JSON, whereas JSON clients often accept plain text. */
function wantsText(accept: string): boolean {
  const wanted = accept.toLowerCase()
  return !wanted.includes('application/json') && /text\/plain|openmetrics/.test(wanted)
}
