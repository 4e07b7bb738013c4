import { after, defaultTransport } from '#transport'
import { GatewayError } from './core/errors.ts'
import type { HttpHandler } from './core/http.ts'
import type { Runtime, TransportCall } from './core/ports.ts'
import type { Budgets, Keys, RateLimits } from './governance/admin-records.ts'
import { fetchTransport } from './http/transport-fetch.ts'
import type { FetchHandler } from './http/web-handler.ts'
import {
  checkGatewayOptions,
  DEFAULT_LIMITS,
  DEFAULT_MARGIN,
  DEFAULT_STORE_TIMEOUT_MS,
  DEFAULT_TIMEOUTS,
  type GatewayOptions,
  type RuntimeOptions,
} from './options.ts'
import { asFailure } from './pipeline/settle.ts'
import type { Services } from './pipeline/services.ts'
import { createModelDirectory } from './providers/catalog.ts'
import { createCircuitBreaker } from './providers/circuit-breaker.ts'
import { createFailover } from './providers/failover.ts'
import { createAudit, type Audit, type AuditPage, type AuditQuery } from './records/audit.ts'
import { Metrics } from './records/metrics.ts'
import { createRequestLog } from './records/request-log.ts'
import type { MetricsReports } from './routes/info.ts'
import { guardStore } from './stores/guard-store.ts'
import { memoryStore } from './stores/memory.ts'
import { yieldToEventLoop } from './tokens/event-loop.ts'
import { createBatches, createRequestTracker, createHandler, lazyAuthorize, lazyFetch } from './wiring/endpoints.ts'
import { createCache } from './wiring/savings.ts'
import { createGovernance } from './wiring/governance.ts'
import { createMetricsReports, createReplay, createServices, createWarningLogger } from './wiring/services.ts'

/** A gateway: its HTTP handlers and its in-process administration API. */
export interface Gateway {
  /**
   * The Web-standard handler for all paths. Accepts the arguments of the global `fetch`, so clients can use it as their
   * `fetch`. Rejects only if `new Request` throws for the arguments. Does not use `this`.
   */
  readonly fetch: FetchHandler
  /** The handler for servers without Web-standard objects, such as the Node adapters. Never throws. */
  readonly handle: HttpHandler
  /** Virtual keys: the secrets that authenticate callers, with their limits. */
  readonly keys: Keys
  /** Budgets that several keys share by `budgetId`. */
  readonly budgets: Budgets
  /** Rate limits that several keys share by `rateLimitId`. */
  readonly rateLimits: RateLimits
  /** Metrics of this process, as in `GET /metrics` and `GET /metrics/cache`. */
  readonly metrics: MetricsReports
  /** The audit trail: uses of keys, including rejected requests. */
  readonly audit: { readonly read: (query?: AuditQuery) => Promise<AuditPage> }
  /** The semantic cache. Neither method has an effect if the cache is disabled. */
  readonly cache: {
    /** Removes all stored answers, or the stored answers of one key. */
    readonly clear: (filter?: { readonly key?: string }) => Promise<void>
    /** Reports that the request with this id (`X-Request-Id`) received the stored answer to a different question. */
    readonly reportWrongHit: (requestId: string) => Promise<void>
  }
  /**
   * Processes message batches until no more items can currently be processed. Intended for hosts that are
   * suspended between requests. A process that serves requests processes batches automatically.
   */
  readonly batches: { readonly work: () => Promise<void> }
  /**
   * Ends detached work and upstream connections, waits for pending settlements and cache writes, and closes the
   * store. Does not wait for running requests: close the server first.
   */
  readonly close: () => Promise<void>
}

/**
 * Creates a gateway. Starts no server: pass the gateway to an adapter, or call its `fetch`.
 *
 * Throws GatewayError `invalid-request` for an invalid option. The message contains the path of the option, its value
 * and the expected value. For an unknown option, the message suggests the most similar known option.
 */
export function createGateway(options: GatewayOptions): Gateway {
  checkGatewayOptions(options)
  const runtime = createRuntime(options.runtime)
  const { storeTimeoutMs = DEFAULT_STORE_TIMEOUT_MS } = options
  const servesWithoutStore = options.onStoreFailure === 'allow'
  const store = guardStore(options.store ?? memoryStore({ now: runtime.now }), {
    after: runtime.after,
    timeoutMs: Math.ceil(storeTimeoutMs * STORE_CALL_SHARE),
  })
  const directory = createModelDirectory({ providers: options.providers, catalog: options.catalog })
  const timeouts = { ...DEFAULT_TIMEOUTS, ...options.timeouts }
  const breaker = createCircuitBreaker(options.circuitBreaker)
  const failover = createFailover({ runtime, timeouts, breaker })
  const observers = {
    audit: createAudit({ store }),
    metrics: new Metrics(runtime.now()),
    log: createRequestLog(options.log),
  }
  if (store.local === true) {
    observers.log.event(
      'WARN',
      'memoryStore() keeps keys, limits and budgets in this process only and loses them when the process ends',
      runtime.now(),
    )
  }
  const governance = createGovernance(options.governance, {
    store,
    runtime,
    maxRequestMs: timeouts.total,
    keyCacheMs: options.keyCacheMs,
    allowsUnreservedRequests: servesWithoutStore,
    onFailure: (cause) => observers.log.failure('configuration not applied', asFailure(cause), runtime.now()),
    onSettlementDropped: ({ reservationId }) => {
      const cause = new Error('The store failed for too long. A settlement was dropped, and its request is not billed.')
      observers.log.failure('settlement dropped', cause, runtime.now(), { reservation_id: reservationId })
    },
  })
  const logStoreWarnings = createWarningLogger(
    [store, options.cache === false ? undefined : options.cache?.index],
    (warning) => observers.log.event('WARN', 'store warning', runtime.now(), { warning }),
  )
  const cache =
    options.cache === false ? undefined : createCache({ pause: yieldToEventLoop, ...options.cache, runtime })
  const replay = createReplay(options.streams, store, runtime)
  const services = createServices({
    runtime,
    store,
    governance,
    failover,
    directory,
    timeouts,
    storeTimeoutMs,
    limits: { ...DEFAULT_LIMITS, ...options.limits },
    observers,
    cache,
    replay,
    savings: options.savings,
    margin: toMarginFunction(options.margin),
    isLossy: options.onUntranslatable === 'drop',
  })
  const { keys, budgets, rateLimits, ledger } = governance
  const metrics = createMetricsReports({ ...observers, cache, now: runtime.now, unsettled: ledger.settlementCounts })
  const requestTracker = createRequestTracker(runtime)
  const batches = createBatches(options.batches, {
    store,
    services,
    findKeyById: governance.findKeyById,
    requestTracker,
  })
  const handle = createHandler(
    {
      services,
      directory,
      store,
      servesWithoutStore,
      circuits: () => failover.circuits(),
      providers: options.providers,
      basePath: options.basePath ?? '',
      admin: {
        authorize: lazyAuthorize(options.admin, runtime),
        records: governance.adminRecords,
        audit: observers.audit,
        metrics,
      },
      requestTracker,
      batches,
      passthrough: options.passthrough,
    },
    () => {
      batches.start()
      logStoreWarnings()
    },
  )

  let closing: Promise<void> = Promise.resolve()
  const shutDown = (): Promise<void> =>
    closeAll(
      [batches.stop, replay.close, runtime.close, ledger.retry, async () => cache?.flush(), () => store.close()],
      (cause) => services.observers.reportFailure('a shutdown step failed', cause),
    )

  return {
    fetch: lazyFetch({ handle }),
    handle,
    keys,
    budgets,
    rateLimits,
    metrics,
    audit: { read: createAuditReader(observers.audit) },
    cache: {
      clear: async (filter) => cache?.clear(filter),
      reportWrongHit: async (requestId) => cache?.reportWrongHit(requestId),
    },
    batches: { work: batches.work },
    close: () => {
      // In sequence, because a second call could otherwise close the store while the first call is sending settlements.
      closing = closing.catch(() => {}).then(shutDown)
      return closing
    },
  }
}

/** Fraction of `storeTimeoutMs` that one store call may take. */
const STORE_CALL_SHARE = 0.4

const CLOSED_CALL: TransportCall = { pause: () => {}, resume: () => {}, abort: () => {} }

/** `close` closes the upstream connections. Later calls fail. */
function createRuntime(options: RuntimeOptions = {}): Runtime & { readonly close: () => Promise<void> } {
  const transport = options.fetch === undefined ? defaultTransport() : fetchTransport(options.fetch)
  let isClosed = false
  return {
    now: options.now ?? Date.now,
    random: options.random ?? Math.random,
    uuid: options.uuid ?? (() => crypto.randomUUID()),
    transport: (request, handler) => {
      if (!isClosed) return transport(request, handler)
      // A call after `close` would open a connection that is never closed.
      const message = 'The gateway was closed before the request was answered. Send the request again.'
      handler.onError(new GatewayError('overloaded', message))
      return CLOSED_CALL
    },
    after,
    close: () => {
      isClosed = true
      return transport.close()
    },
  }
}

/** Runs all steps, even if an earlier step fails. Rejects with the first failure. */
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

function toMarginFunction(margin: GatewayOptions['margin'] = DEFAULT_MARGIN): Services['margin'] {
  if (typeof margin === 'number') return () => margin
  return (key, model) => margin({ keyId: key.id, keyName: key.name, model })
}

/** Returns a function that reads audit records with camel-case field names. */
function createAuditReader(audit: Pick<Audit, 'read'>): Gateway['audit']['read'] {
  return async (query) => {
    const { fromWire } = await import('./core/field-names.ts')
    return fromWire(await audit.read(query)) as AuditPage
  }
}
