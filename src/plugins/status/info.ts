import { withTimeout } from '../../core/async.ts'
import { GatewayError } from '../../core/errors.ts'
import { toWire } from '../../core/field-names.ts'
import type { JsonObject } from '../../core/json.ts'
import { toDollars, toNanoUsd } from '../../core/money.ts'
import type { ProviderStates, Runtime, Model } from '../../core/ports.ts'
import type { Store } from '../../core/store.ts'
import { mayUse, type VirtualKey } from '../../governance/virtual-key.ts'
import { findCallerKey } from '../../kernel/admission.ts'
import { sendJson } from '../../kernel/settle.ts'
import type { Services } from '../../kernel/services.ts'
import type { MetricsSummary, MetricsTotals } from '../metrics/metrics.ts'
import { noStoreHeaders, type Handler, pathId, sendWithRateStatus } from '../../kernel/run.ts'

interface ListedModel {
  /** `<provider>/<model_id>`, or an alias. */
  readonly name: string
  readonly provider: string
  readonly model: Model
}

const MAX_PAGE_SIZE = 1000

export function listModels(models: readonly ListedModel[], services: Services): Handler {
  return async (call) => {
    const key = await findCallerKey(call.request, services)
    const visible = models.filter((entry) => mayList(key, entry))
    const page = pageOf(visible, call.query)
    return sendWithRateStatus(call, key, services, {
      object: 'list',
      data: page.entries.map(writeModel),
      has_more: page.hasMore,
      first_id: page.entries[0]?.name ?? null,
      last_id: page.entries.at(-1)?.name ?? null,
    })
  }
}

export function getModel(models: readonly ListedModel[], services: Services): Handler {
  return async (call) => {
    const key = await findCallerKey(call.request, services)
    const name = pathId(call)
    const listed = models.find((candidate) => candidate.name === name && mayList(key, candidate))
    const entry = listed ?? findUnlisted(name, key, services)
    if (entry === undefined) {
      throw new GatewayError(
        'invalid-model',
        'The model does not exist, or this key may not use it. GET /v1/models lists the models of this key.',
        { param: 'model' },
      )
    }
    return sendWithRateStatus(call, key, services, writeModel(entry))
  }
}

/** A request may also name a model without its provider, with another date, or one that only the vendor knows. */
function findUnlisted(name: string, key: VirtualKey, { resolve }: Services): ListedModel | undefined {
  try {
    return resolve(name, key)
      .routes.map(({ provider, model }) => ({ name, provider: provider.name, model }))
      .find((entry) => mayList(key, entry))
  } catch (error) {
    if (GatewayError.is(error) && error.kind !== 'internal') return undefined
    throw error
  }
}

function mayList(key: VirtualKey, { name, provider, model }: ListedModel): boolean {
  return mayUse(key, name, [`${provider}/${model.id}`])
}

function writeModel({ name, provider, model }: ListedModel): JsonObject {
  const created = model.created ?? 0
  return {
    id: name,
    object: 'model',
    type: 'model',
    created,
    created_at: new Date(created * 1000).toISOString(),
    owned_by: provider,
    display_name: model.displayName ?? model.id,
    context_window: model.contextWindow,
    max_output_tokens: model.maxOutputTokens,
  }
}

/** The default limit is high, because clients of the chat format do not paginate. */
function pageOf(
  visible: readonly ListedModel[],
  query: URLSearchParams,
): { readonly entries: readonly ListedModel[]; readonly hasMore: boolean } {
  const limit = readLimit(query, MAX_PAGE_SIZE)
  const after = query.get('after_id')
  const before = query.get('before_id')
  if (before !== null) {
    const end = Math.max(0, indexOf(visible, before, 'before_id'))
    return { entries: visible.slice(Math.max(0, end - limit), end), hasMore: end > limit }
  }
  const start = after === null ? 0 : indexOf(visible, after, 'after_id') + 1
  return { entries: visible.slice(start, start + limit), hasMore: visible.length > start + limit }
}

export function readLimit(query: URLSearchParams, fallback: number): number {
  const limit = query.has('limit') ? Number(query.get('limit')) : fallback
  if (Number.isInteger(limit) && limit >= 1 && limit <= MAX_PAGE_SIZE) return limit
  throw new GatewayError(
    'invalid-request',
    `limit is ${String(query.get('limit')).slice(0, 20)}; expected an integer from 1 to ${MAX_PAGE_SIZE}.`,
    { param: 'limit' },
  )
}

function indexOf(visible: readonly ListedModel[], id: string, param: string): number {
  const index = visible.findIndex((entry) => entry.name === id)
  if (index >= 0) return index
  throw new GatewayError('invalid-request', `${param}: expected the id of a model in this list.`, { param })
}

type Health = 'healthy' | 'degraded' | 'unhealthy'

const STORE_TIMEOUT_MS = 1000

interface StatusDependencies {
  readonly store: Store
  readonly providers: () => ProviderStates
  readonly runtime: Pick<Runtime, 'now' | 'after'>
  readonly servesWithoutStore: boolean
}

/**
 * The specification defines the service names: bifrost is the routing to providers, redis is the store, and
 * mcp_tools is the search in stored contexts.
 */
export function health(dependencies: StatusDependencies): Handler {
  return async (call) => {
    const isStoreUp = await isStoreReachable(dependencies)
    const areProvidersHealthy = Object.values(dependencies.providers()).every((state) => state === 'healthy')
    const isDegraded = !isStoreUp || !areProvidersHealthy
    const isUnhealthy = !isStoreUp && !dependencies.servesWithoutStore
    const status: Health = isUnhealthy ? 'unhealthy' : isDegraded ? 'degraded' : 'healthy'
    const body = {
      status,
      timestamp: new Date(dependencies.runtime.now()).toISOString(),
      services: {
        optimizer: 'healthy',
        bifrost: areProvidersHealthy ? 'healthy' : 'degraded',
        redis: isStoreUp ? 'healthy' : 'unhealthy',
        mcp_tools: isStoreUp ? 'healthy' : 'unhealthy',
      },
    }
    sendJson(call.sink, isUnhealthy ? 503 : 200, noStoreHeaders(call), JSON.stringify(body))
  }
}

export function ready(dependencies: StatusDependencies): Handler {
  return async (call) => {
    const isStoreUp = await isStoreReachable(dependencies)
    const states = Object.entries(dependencies.providers())
    const providers = Object.fromEntries(states.map(([name, state]) => [name, state !== 'unavailable']))
    const isRoutingUp = Object.values(providers).some(Boolean)
    const isReady = (isStoreUp || dependencies.servesWithoutStore) && isRoutingUp
    const body = { ready: isReady, dependencies: { bifrost: isRoutingUp, redis: isStoreUp, providers } }
    sendJson(call.sink, isReady ? 200 : 503, noStoreHeaders(call), JSON.stringify(body))
  }
}

export const greeting: Handler = (call) => {
  const headers = { ...noStoreHeaders(call), 'content-type': 'text/plain; charset=utf-8' }
  call.sink.send(200, headers, 'sluice is running. Send requests to /v1 with a virtual key.\n')
}

function isStoreReachable({ store, runtime }: StatusDependencies): Promise<boolean> {
  return isTrueWithin(STORE_TIMEOUT_MS, () => store.ping().then(() => true), runtime)
}

export async function isTrueWithin(
  timeoutMs: number,
  check: () => boolean | Promise<boolean>,
  { after }: Pick<Runtime, 'after'>,
): Promise<boolean> {
  const createError = (): Error => new Error('The check did not end in time.')
  try {
    return (await withTimeout(Promise.resolve(check()), { ms: timeoutMs, after, createError })) === true
  } catch {
    return false
  }
}

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

export function metrics(reports: MetricsReports): Handler {
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

interface Drops {
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
    ...counterLines(`${trials}_measured_total`, 'Those whose answer was compared.', 'tier', byTier('measuredTrials')),
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
