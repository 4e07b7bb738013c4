import type { HttpHandler, HttpHandling, HttpRequest } from './core/http.ts'
import { lazy, isPromise } from './core/async.ts'
import type { ProviderStates, Runtime } from './core/ports.ts'
import { writeChatFailure, writeMessageFailure } from './formats/failures.ts'
import type { WriteFailure } from './formats/format.ts'
import type { Budgets, Keys, RateLimits } from './governance/admin-records.ts'
import type { RateStatus } from './governance/reservation.ts'
import { createRuntime } from './http/runtime.ts'
import type { FetchHandler } from './http/web-handler.ts'
import {
  checkGatewayOptions,
  DEFAULT_LIMITS,
  DEFAULT_MARGIN,
  DEFAULT_STORE_TIMEOUT_MS,
  DEFAULT_TIMEOUTS,
  type GatewayOptions,
} from './options.ts'
import { rateStatusOfCaller } from './pipeline/authenticate.ts'
import { asFailure } from './pipeline/settle.ts'
import { INTERNAL } from './pipeline/observe-requests.ts'
import type { Services } from './pipeline/services.ts'
import { createTraffic } from './pipeline/traffic.ts'
import { createDirectory } from './providers/catalog.ts'
import { createCircuitBreaker, providerStates } from './providers/circuit-breaker.ts'
import { createFailover } from './providers/failover.ts'
import { createAudit, type Audit, type AuditPage, type AuditQuery } from './records/audit.ts'
import { createMetrics } from './records/metrics.ts'
import { createRequestLog } from './records/request-log.ts'
import { IncomingCall, refuse, type Call } from './routes/endpoint.ts'
import type { Authorize } from './routes/admin.ts'
import type { MetricsReports } from './routes/status.ts'
import { guardStore } from './stores/guarded.ts'
import { memoryStore } from './stores/memory.ts'
import { yieldToEventLoop } from './tokens/yield.ts'
import { createBatches } from './wiring/batches.ts'
import { createCache } from './wiring/savings.ts'
import { createRoutes } from './wiring/endpoints.ts'
import { createGovernance } from './wiring/governance.ts'
import { createMetricsReports, createServices, createStoreWarnings } from './wiring/services.ts'
import { createReplay } from './wiring/replay.ts'

/** A gateway: its HTTP handlers, and its administration in process. */
export interface Gateway {
  /**
   * The Web-standard handler of all paths. It accepts the arguments of the global `fetch`, so clients can use it as
   * their `fetch`. Rejects only for arguments that `new Request` refuses. It does not use `this`.
   */
  readonly fetch: FetchHandler
  /** The handler for servers without web objects, such as the adapters of Node. Never throws. */
  readonly handle: HttpHandler
  /** Virtual keys: the secrets that authenticate callers, with their limits. */
  readonly keys: Keys
  /** Budgets that several keys share by `budgetId`. */
  readonly budgets: Budgets
  /** Rate limits that several keys share by `rateLimitId`. */
  readonly rateLimits: RateLimits
  /** Metrics of this process, as in `GET /metrics` and `GET /metrics/cache`. */
  readonly metrics: MetricsReports
  /** The audit trail: every use of a key, including refused requests. */
  readonly audit: { readonly read: (query?: AuditQuery) => Promise<AuditPage> }
  /** The semantic cache. If the cache is disabled, both methods have no effect. */
  readonly cache: {
    /** Removes all stored answers, or those of one key. */
    readonly clear: (which?: { readonly key?: string }) => Promise<void>
    /** Reports that the request with this id (`X-Request-Id`) received the stored answer to a different question. */
    readonly reportWrongHit: (requestId: string) => Promise<void>
  }
  /**
   * Processes message batches until no item can be processed at the moment, for hosts that sleep between requests. A
   * process that serves requests does this automatically.
   */
  readonly batches: { readonly work: () => Promise<void> }
  /**
   * Ends detached work and upstream connections, waits for pending settlements and cached answers, and closes the
   * store. Does not wait for running requests: close the server first.
   */
  readonly close: () => Promise<void>
}

/**
 * Creates a gateway. It needs no server and does no work before its first request.
 *
 * Throws GatewayError `invalid-request` for an invalid option. The message contains its path, the expected and the
 * given value; for an unknown option, the nearest known one.
 */
export function createGateway(options: GatewayOptions): Gateway {
  checkGatewayOptions(options)
  const { basePath = '' } = options
  const runtime = createRuntime(options.runtime)
  const { storeTimeoutMs = DEFAULT_STORE_TIMEOUT_MS } = options
  const servesWithoutStore = options.onStoreFailure === 'allow'
  const store = guardStore(options.store ?? memoryStore({ now: runtime.now }), {
    after: runtime.after,
    timeoutMs: Math.ceil(storeTimeoutMs * CALL_SHARE),
  })
  const directory = createDirectory({ providers: options.providers, catalog: options.catalog })
  const timeouts = { ...DEFAULT_TIMEOUTS, ...options.timeouts }
  const breaker = createCircuitBreaker(options.circuitBreaker)
  const failover = createFailover({ runtime, timeouts, breaker })
  const observers = {
    audit: createAudit({ store }),
    metrics: createMetrics(runtime.now()),
    log: createRequestLog(options.log),
  }
  if (store.local === true) {
    observers.log.event(
      'WARN',
      'memoryStore() keeps keys, limits and budgets in this process only and loses them when it ends',
      runtime.now(),
    )
  }
  const governance = createGovernance(options.governance, {
    store,
    runtime,
    totalMs: timeouts.total,
    keyCacheMs: options.keyCacheMs,
    allowsUnreserved: servesWithoutStore,
    onFailure: (cause) => observers.log.failure('configuration not in place', asFailure(cause), runtime.now()),
    onSettlementDropped: ({ reservationId }) => {
      const cause = new Error('The store failed for too long. A settlement was dropped, and its request is not billed.')
      observers.log.failure('settlement dropped', cause, runtime.now(), { reservation_id: reservationId })
    },
  })
  const warn = createStoreWarnings([store, options.cache === false ? undefined : options.cache?.index], (warning) =>
    observers.log.event('WARN', 'store warning', runtime.now(), { warning }),
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
    margin: marginOf(options.margin),
    isLossy: options.onUntranslatable === 'drop',
  })
  const metrics = createMetricsReports({
    ...observers,
    cache,
    now: runtime.now,
    unsettled: governance.ledger.unsettled,
  })
  const { keys, budgets, rateLimits } = governance
  const admin = {
    authorize: lazyAuthorize(options.admin, runtime),
    records: governance.adminRecords,
    audit: observers.audit,
    metrics,
  }
  const traffic = createTraffic(runtime)
  const batches = createBatches(options.batches, { store, services, keyById: governance.keyById, traffic })
  const states = (): ProviderStates => providerStates(options.providers, failover.circuits())
  const { passthrough } = options
  const route = createRoutes({
    services,
    directory,
    store,
    servesWithoutStore,
    states,
    basePath,
    admin,
    traffic,
    batches,
    passthrough,
  })

  const handle: HttpHandler = (request, sink) => {
    let id = ''
    try {
      id = requestId(runtime.uuid())
      const start = { id, startedAt: runtime.now(), request, sink }
      batches.start()
      warn()
      const { handle: answer, variables } = route(request.method, request.path)
      const done = answer(new IncomingCall(start, variables))
      if (isPromise(done)) done.catch((error: unknown) => refuseCall({ id, request, sink }, error))
    } catch (error) {
      void refuseCall({ id: id === '' ? requestId(crypto.randomUUID()) : id, request, sink }, error)
    }
  }

  /** Never rejects, even if the clock of the runtime throws. */
  const refuseCall = async (call: Pick<Call, 'id' | 'request' | 'sink'>, error: unknown): Promise<void> => {
    const failure = asFailure(error)
    let rate: RateStatus = { limit: 0, remaining: 0, resetAt: 0 }
    let writeFailure: WriteFailure = writeChatFailure
    try {
      if (failure.kind === 'internal') services.observers.failed(INTERNAL, failure, { request_id: call.id })
      writeFailure = failureWriterFor(call.request)
      rate = await rateStatusOfCaller(call.request, services)
    } catch {
      // If the limits cannot be read, the response is sent without them.
    }
    refuse(call, failure, { writeFailure, rate })
  }

  let closing: Promise<void> = Promise.resolve()
  const closeOnce = (): Promise<void> =>
    closeAll(
      [
        batches.stop,
        replay.close,
        runtime.close,
        governance.ledger.retry,
        async () => cache?.flush(),
        () => store.close(),
      ],
      (cause) => services.observers.failed('a step of closing the gateway failed', cause),
    )

  return {
    fetch: onDemandFetch({ handle }),
    handle,
    keys,
    budgets,
    rateLimits,
    metrics,
    audit: { read: readAudit(observers.audit) },
    cache: {
      clear: async (which) => cache?.clear(which),
      reportWrongHit: async (requestId) => cache?.reportWrongHit(requestId),
    },
    batches: { work: batches.work },
    close: () => {
      // In sequence, so that a second call does not close the store while the first sends settlements.
      closing = closing.catch(() => {}).then(closeOnce)
      return closing
    },
  }
}

/** The share of `storeTimeoutMs` that one call may take: 2 of 5 seconds. */
const CALL_SHARE = 0.4

function requestId(uuid: string): string {
  return `req_${uuid.replaceAll('-', '')}`
}

/** Runs every step, even after a failure, and rejects with the first failure. */
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

/** Returns the format of errors on paths without a format. Clients of the messages format send its version header. */
function failureWriterFor(request: HttpRequest): WriteFailure {
  const isMessages = request.path.includes('/messages')
  return isMessages || request.header('anthropic-version') !== undefined ? writeMessageFailure : writeChatFailure
}

function marginOf(margin: GatewayOptions['margin'] = DEFAULT_MARGIN): Services['margin'] {
  if (typeof margin === 'number') return () => margin
  return (key, model) => margin({ keyId: key.id, keyName: key.name, model })
}

/** Reads audit records with the field names in process. */
function readAudit(audit: Pick<Audit, 'read'>): Gateway['audit']['read'] {
  return async (query) => {
    const { fromWire } = await import('./core/field-names.ts')
    return fromWire(await audit.read(query)) as AuditPage
  }
}

/** Loads the code of the admin API with its first request. */
function lazyAuthorize(admin: GatewayOptions['admin'], runtime: Pick<Runtime, 'after'>): Authorize {
  const load = lazy(async () => (await import('./wiring/on-demand.ts')).createAuthorize(admin, runtime))
  return async (request, limits) => (await load())(request, limits)
}

/** The web-standard edge is loaded by the first request that needs it. A Node server uses its own edge. */
function onDemandFetch(handling: HttpHandling): FetchHandler {
  let fetch: FetchHandler | undefined
  const load = lazy(async () => (fetch = (await import('./http/web-handler.ts')).toFetch(handling)))
  return (input, init) => fetch?.(input, init) ?? load().then((loaded) => loaded(input, init))
}
