import type { ProviderStates } from './core/ports.ts'
import { anthropicFormat } from './formats/anthropic/format.ts'
import type { Format } from './formats/format.ts'
import { openaiFormat } from './formats/openai/format.ts'
import type { Budgets } from './governance/budgets.ts'
import type { Keys } from './governance/keys.ts'
import type { RateLimits } from './governance/rate-limits.ts'
import { createRouter } from './http/router.ts'
import { createRuntime } from './http/runtime.ts'
import { checkOptions, DEFAULT_LIMITS, DEFAULT_MARGIN, DEFAULT_TIMEOUTS, type GatewayOptions } from './options.ts'
import { rateOfCaller } from './pipeline/admit.ts'
import { asFailure } from './pipeline/refuse.ts'
import type { Parts } from './pipeline/stages.ts'
import { createTraffic } from './pipeline/traffic.ts'
import { INTERNAL } from './pipeline/write-down.ts'
import { createDirectory } from './providers/catalog.ts'
import { createCircuitBreaker } from './providers/circuit-breaker.ts'
import { createFailover } from './providers/failover.ts'
import { providerStates } from './providers/provider-states.ts'
import { createAudit, type AuditPage, type AuditQuery } from './records/audit.ts'
import { createMetrics } from './records/metrics.ts'
import { createRequestLog } from './records/request-log.ts'
import { createAuthorize } from './routes/authorize.ts'
import { refusal, type Call } from './routes/endpoint.ts'
import type { MetricsReports } from './routes/metrics.ts'
import { guardStore } from './stores/guarded.ts'
import { memoryStore } from './stores/memory.ts'
import { breathe } from './tokens/breathe.ts'
import { createBatches } from './wiring/batches.ts'
import { createCache } from './wiring/cache.ts'
import { endpoints } from './wiring/endpoints.ts'
import { createGovernance } from './wiring/governance.ts'
import { createMetricsReports } from './wiring/metrics.ts'
import { createParts } from './wiring/parts.ts'
import { createReplay } from './wiring/replay.ts'

/** A running gateway. */
export interface Gateway {
  /** The Web-standard handler of every path; never rejects. May be passed around without its gateway. */
  readonly fetch: (request: Request) => Promise<Response>
  readonly keys: Keys
  /** Budgets that several keys share by `budget_id`. */
  readonly budgets: Budgets
  /** Rate limits that several keys share by `rate_limit_id`. */
  readonly rateLimits: RateLimits
  /** What `GET /metrics` and `GET /metrics/cache` answer. */
  readonly metrics: MetricsReports
  /** Every use of a key, refused ones included, by key and time. */
  readonly audit: { readonly read: (query?: AuditQuery) => Promise<AuditPage> }
  /** Tier 1. */
  readonly cache: {
    /** Removes all stored answers, or those that requests of one key stored. */
    readonly clear: (which?: { readonly key?: string }) => Promise<void>
    /** Reports that the request with this id (`X-Request-Id`) got a stored answer to another question. */
    readonly reportWrongHit: (requestId: string) => Promise<void>
  }
  /**
   * Works off message batches until nothing can be done at the moment: for hosts that sleep between requests. A process
   * that serves requests does so by itself.
   */
  readonly batches: { readonly work: () => Promise<void> }
  /**
   * Ends detached work, then upstream connections, and closes the store. Requests under way are not waited for: end the
   * server first. Takes every step, and rejects with the first failure.
   */
  readonly close: () => Promise<void>
}

/**
 * Makes a gateway. Needs no server and does no work before its first request.
 *
 * Throws GatewayError `invalid-request` for options that are not as described: the message names the path of the
 * first wrong one and what was expected.
 */
export function createGateway(options: GatewayOptions): Gateway {
  checkOptions(options)
  const { basePath = '' } = options
  const runtime = createRuntime(options.runtime)
  const store = guardStore(options.store ?? memoryStore({ now: runtime.now }), { after: runtime.after })
  const directory = createDirectory({ providers: options.providers, catalog: options.catalog })
  const timeouts = { ...DEFAULT_TIMEOUTS, ...options.timeouts }
  const breaker = createCircuitBreaker(options.circuitBreaker)
  const failover = createFailover({ runtime, timeouts, breaker })
  const books = {
    audit: createAudit({ store }),
    metrics: createMetrics(runtime.now()),
    log: createRequestLog(options.log),
  }
  if (store.local === true) {
    books.log.event('WARN', 'keys, limits and budgets live in this process alone and end with it', runtime.now())
  }
  const governance = createGovernance(options.governance, {
    store,
    runtime,
    totalMs: timeouts.total,
    onFailure: (cause) => books.log.failure('configuration not in place', asFailure(cause), runtime.now()),
  })
  const cache = options.cache === false ? undefined : createCache({ pause: breathe, ...options.cache, runtime })
  const replay = createReplay(options.streams, store, runtime)
  const parts = createParts({
    runtime,
    store,
    governance,
    failover,
    directory,
    timeouts,
    limits: { ...DEFAULT_LIMITS, ...options.limits },
    books,
    cache,
    replay,
    savings: options.savings,
    margin: marginOf(options.margin),
  })
  const metrics = createMetricsReports({ ...books, cache, now: runtime.now })
  const { keys, budgets, rateLimits } = governance
  const admin = {
    authorize: createAuthorize(options.admin, runtime),
    keys,
    budgets,
    rateLimits,
    audit: books.audit,
    metrics,
  }
  const traffic = createTraffic(runtime)
  const batches = createBatches(options.batches, { store, parts, keyById: governance.keyById, traffic })
  const states = (): ProviderStates => providerStates(options.providers, failover.circuits())
  const route = createRouter(endpoints({ parts, directory, store, states, basePath, admin, traffic, batches }))

  const answer = async (call: Call): Promise<Response> => {
    try {
      const { handle, variables } = route(call.request.method, call.url.pathname)
      return await handle({ ...call, variables })
    } catch (error) {
      const failure = asFailure(error)
      if (failure.kind === 'internal') parts.records.failed(INTERNAL, failure, { request_id: call.id })
      const rate = await rateOfCaller(call.request.headers, parts)
      return refusal(failure, call.id, formatOf(call), rate)
    }
  }

  const fetch = async (request: Request): Promise<Response> => {
    try {
      batches.start()
      return await answer({
        id: `req_${runtime.uuid().replaceAll('-', '')}`,
        startedAt: runtime.now(),
        request,
        url: new URL(request.url),
        variables: {},
      })
    } catch (error) {
      return lastResort(error, parts)
    }
  }

  return {
    fetch,
    keys,
    budgets,
    rateLimits,
    metrics,
    audit: { read: books.audit.read },
    cache: {
      clear: async (which) => cache?.clear(which),
      reportWrongHit: async (requestId) => cache?.reportWrongHit(requestId),
    },
    batches: { work: batches.work },
    close: () =>
      closeAll([batches.stop, replay.close, governance.ledger.retry, runtime.close, () => store.close()], (cause) =>
        parts.records.failed('a step of closing the gateway failed', cause),
      ),
  }
}

/** Runs every step, whatever fails before it, and rejects with the first failure. */
async function closeAll(
  steps: readonly (() => Promise<unknown>)[],
  onFailure: (cause: unknown) => void,
): Promise<void> {
  const failures: unknown[] = []
  for (const step of steps) {
    try {
      await step()
    } catch (cause) {
      failures.push(cause)
      onFailure(cause)
    }
  }
  if (failures.length > 0) throw failures[0]
}

/** What the options of the runtime throw, or a request that has no URL, leaves nothing to answer by. */
function lastResort(error: unknown, { records }: Pick<Parts, 'records'>): Response {
  const id = `req_${crypto.randomUUID().replaceAll('-', '')}`
  try {
    records.failed(INTERNAL, error, { request_id: id })
  } catch {
    // The clock of the runtime fails, too.
  }
  return refusal(asFailure(error), id, openaiFormat, { limit: 0, remaining: 0, resetAt: 0 })
}

/** Errors of paths that belong to no format follow the client: those of the message format send its version. */
function formatOf({ request, url }: Call): Format {
  const isMessages = url.pathname.includes('/v1/messages')
  return isMessages || request.headers.has('anthropic-version') ? anthropicFormat : openaiFormat
}

function marginOf(margin: GatewayOptions['margin'] = DEFAULT_MARGIN): Parts['margin'] {
  if (typeof margin === 'number') return () => margin
  return (key, model) => margin({ keyId: key.id, keyName: key.name, model })
}
