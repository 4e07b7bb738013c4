import type { SemanticCache } from './plugins/cache/semantic-cache.ts'
import type { HttpHandler } from './core/http.ts'
import type { Store } from './core/store.ts'
import type { Budgets, Keys, RateLimits } from './plugins/admin/admin-records.ts'
import { BodyCapacity } from './http/body.ts'
import type { FetchHandler } from './http/web-handler.ts'
import { checkGatewayOptions, createRuntime, DEFAULT_LIMITS, DEFAULT_TIMEOUTS, type GatewayOptions } from './options.ts'
import { createResolve } from './kernel/resolve-model.ts'
import { bodyLimitsOf } from './kernel/parse-request.ts'
import { asFailure, createObservers, type ObserverTargets } from './kernel/settle.ts'
import type { Services } from './kernel/services.ts'
import { createModelDirectory, type ModelDirectory } from './providers/catalog.ts'
import { createCircuitBreaker } from './providers/circuit-breaker.ts'
import { createFailover, type Failover } from './providers/failover.ts'
import { listedStemOf } from './providers/vendor.ts'
import { createAudit, type AuditPage, type AuditQuery } from './plugins/audit/audit.ts'
import { Metrics } from './plugins/metrics/metrics.ts'
import { createRequestLog } from './plugins/request-log/request-log.ts'
import { guardStore } from './stores/store-rules.ts'
import { memoryStore } from './stores/memory.ts'
import { yieldToEventLoop } from './tokens/event-loop.ts'
import { createMeter, createTokenizer } from './tokens/meter.ts'
import { createHandler, lazyAuthorize, lazyFetch } from './kernel/endpoints.ts'
import { closePlugins, observeWithPlugins } from './plugins/custom/wiring.ts'
import { createDryRun, createPromptMarker, createSavings } from './plugins/savings/options.ts'
import type { ExplainInput, ExplainSavingsOptions, SavingsExplanation } from './plugins/savings/explain-plans.ts'
import { createGovernance, type Governance } from './plugins/admin/governance.ts'
import type { Idempotency } from './plugins/idempotency/idempotency.ts'
import { lazyIdempotency } from './plugins/idempotency/lazy-idempotency.ts'
import type { StreamsOptions } from './plugins/recordings/options.ts'
import { Recordings } from './plugins/recordings/recordings.ts'
import { DetachedWork } from './streams/shared-work.ts'
import type { Runtime } from './core/ports.ts'
import type { MetricsReports } from './plugins/metrics/prometheus.ts'
import { createMetricsReports } from './plugins/metrics/reports.ts'
import { createBatches } from './plugins/batches/lazy-batches.ts'
import { createRequestTracker } from './kernel/request-tracker.ts'
import { createCache } from './plugins/cache/lazy-cache.ts'
import { smallModelFor } from './providers/small-model.ts'
import { lazyTurns } from './plugins/stored-responses/lazy-turns.ts'
import { createWarningLogger } from './stores/warnings.ts'

/** A gateway: its HTTP handlers and its in-process administration API. */
export interface Gateway {
  /**
   * The Web-standard handler for all paths, for servers such as `Bun.serve({ fetch: gateway.fetch })`. Also accepts the
   * arguments of the global `fetch`, so clients can use it as their `fetch`. Rejects only if `new Request` throws for the
   * arguments. Does not use `this`.
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
  /** Metrics of this gateway since its creation, as in `GET /metrics` and `GET /metrics/cache`. */
  readonly metrics: MetricsReports
  /** The audit trail: uses of keys, including rejected requests. */
  readonly audit: { readonly read: (query?: AuditQuery) => Promise<AuditPage> }
  /** The savings tiers. */
  readonly savings: {
    /**
     * Returns what each setting of the savings would have cost and lost for your own requests: one conversation, as the
     * body of its last request, or a log of requests. Calls no vendor and no small model, and changes no state, budget or
     * cache. Rejects with `invalid-request` and the path of the field for an invalid input. See docs/explain.md.
     *
     * @example
     * const { plans } = await gateway.savings.explain([
     *   { at: '2026-11-02T09:00:00Z', body: { model: 'openai/gpt-5-mini', messages: [{ role: 'user', content: 'Hello' }] } },
     * ])
     * for (const { plan, costUsd, keptShare, dearerSessions } of plans) console.log(plan, costUsd, keptShare, dearerSessions)
     */
    readonly explain: (input: ExplainInput, options?: ExplainSavingsOptions) => Promise<SavingsExplanation>
  }
  /** The semantic cache. Neither method has an effect if the cache is disabled. */
  readonly cache: {
    /** Removes all stored answers, or those of the key with the id `key`. */
    readonly clear: (filter?: { readonly key?: string }) => Promise<void>
    /** Reports that the request with this id (`X-Request-Id`) received the stored answer to a different question. */
    readonly reportWrongHit: (requestId: string) => Promise<void>
  }
  /**
   * Processes message batches until no more items can currently be processed. For hosts that are suspended between
   * requests. On other hosts, requests start the processing.
   */
  readonly batches: { readonly work: () => Promise<void> }
  /**
   * Ends batch processing, detached work and upstream connections, sends pending settlements, waits for cache writes,
   * and closes the store. Does not wait for running requests: close the server first. Rejects with the first failure,
   * after all steps have run.
   */
  readonly close: () => Promise<void>
}

/**
 * Creates a gateway. Starts no server: pass the gateway to an adapter, or call its `fetch`. Throws GatewayError
 * `invalid-request` for an invalid option. The message contains the path of the option and what is expected.
 */
export function createGateway(options: GatewayOptions): Gateway {
  checkGatewayOptions(options)
  const runtime = createRuntime(options.runtime)
  shareClock(options)
  const { storeTimeoutMs = 5_000 } = options
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
    log: createRequestLog(options.log, options.runtime?.stderr),
    now: runtime.now,
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
      const cause = new Error(
        'A settlement was dropped, because the store rejected it or too many are waiting. Its request is not billed.',
      )
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
  const services = createServices(options, {
    runtime,
    store,
    governance,
    failover,
    directory,
    timeouts,
    storeTimeoutMs,
    observers,
    cache,
    replay,
  })
  const { keys, budgets, rateLimits, ledger, findKeyById } = governance
  const metrics = createMetricsReports(observers, cache, ledger)
  const requestTracker = createRequestTracker(runtime)
  const batches = createBatches(options.batches, { store, services, findKeyById, requestTracker })
  const handle = createHandler(
    {
      services,
      directory,
      store,
      servesWithoutStore,
      circuits: () => failover.circuits(),
      providers: options.providers,
      basePath: options.basePath ?? '',
      publicUrl: options.publicUrl,
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
      [
        batches.stop,
        replay.close,
        () => closePlugins(services),
        runtime.close,
        ledger.retry,
        async () => cache?.flush(),
        () => store.close(),
      ],
      (cause) => services.observers.reportFailure('a shutdown step failed', cause),
    )

  return {
    fetch: lazyFetch({ handle }),
    handle,
    keys,
    budgets,
    rateLimits,
    metrics,
    audit: {
      read: async (query) => (await import('./kernel/fallback-handler.ts')).readAudit(observers.audit, query),
    },
    savings: {
      explain: async (input, explainOptions = {}) => {
        const { explainSavings } = await import('./kernel/fallback-handler.ts')
        return explainSavings(input, explainOptions, { savings: options.savings ?? {}, services })
      },
    },
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

/** Maximum time that a request waits for an identical request before it calls the upstream itself, in milliseconds. */
const FOLLOW_TIMEOUT_MS = 30_000

interface ServiceDependencies extends Pick<Services, 'runtime' | 'timeouts' | 'storeTimeoutMs'> {
  readonly store: Store
  readonly governance: Governance
  readonly failover: Failover
  readonly directory: ModelDirectory
  readonly observers: ObserverTargets
  readonly cache: SemanticCache | undefined
  readonly replay: Replay
}

function createServices(options: GatewayOptions, dependencies: ServiceDependencies): Services {
  const { runtime, store, governance, failover, directory, timeouts, storeTimeoutMs, cache, replay } = dependencies
  const { savings = {} } = options
  const limits = { ...DEFAULT_LIMITS, ...options.limits }
  const meter = createMeter(createTokenizer(), () => crypto.getRandomValues(new Uint32Array(1))[0] ?? 0)
  const { plugins } = options
  const observers = observeWithPlugins(createObservers(dependencies.observers), plugins, runtime)
  const { log, metrics } = dependencies.observers
  const timeout = { ms: FOLLOW_TIMEOUT_MS, after: runtime.after }
  return {
    findKey: governance.findKey,
    ...(cache !== undefined && { answerCache: { cache, followTimeout: timeout } }),
    resolve: createResolve(directory, runtime.random),
    provider: directory.provider,
    ledger: governance.ledger,
    turns: lazyTurns(store, runtime),
    recordings: replay.recordings,
    idempotency: replay.idempotency,
    detached: replay.detached,
    waterfall: createSavings(
      savings,
      { store, meter, runtime },
      {
        onShadow: (record, fields) => {
          metrics.recordTrial(record)
          log.event('INFO', 'shadow', runtime.now(), fields)
        },
        onShadowFailure: (cause) => observers.reportFailure('the shadow run of a savings tier failed', cause),
      },
    ),
    markPrompt: createPromptMarker(savings, { store, runtime }),
    dryRun: () => createDryRun(savings, { store, meter, runtime }),
    smallModel: (route) => smallModelFor(route, { runtime, timeouts }),
    upstream: failover,
    meter,
    margin: toMarginFunction(options.margin),
    showsMargin: options.headers?.margin !== false,
    recentOutputs: new Map(),
    billsListPrice: options.billing?.cachedTokens === 'list',
    observers,
    plugins,
    limits,
    bodyLimits: bodyLimitsOf({ limits, runtime }),
    bodyCapacity: new BodyCapacity({
      maxBytes: limits.bodyBytesPerKey,
      waitMs: limits.bodyReadMs,
      after: runtime.after,
    }),
    isLossy: options.onUntranslatable === 'drop',
    timeouts,
    storeTimeoutMs,
    runtime,
  }
}

const STORE_CALL_SHARE = 0.4

/** Stores that compare the gateway's windows and expiries with another clock would reject or drop them. */
function shareClock({ runtime: { now } = {}, store, cache }: GatewayOptions): void {
  if (now === undefined) return
  const { answers = undefined, index = undefined } = cache === undefined || cache === false ? {} : cache
  for (const part of [store, answers, index]) part?.useClock?.(now)
}

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

function toMarginFunction(margin: GatewayOptions['margin'] = 1.5): Services['margin'] {
  if (typeof margin === 'number') return () => margin
  return (key, modelName, route) => {
    const model = route === undefined ? modelName : `${route.provider.name}/${listedStemOf(route)}`
    return margin({ keyId: key.id, keyName: key.name, model })
  }
}

interface Replay {
  readonly recordings: Recordings
  readonly idempotency: Pick<Idempotency, 'claim' | 'flush'>
  readonly detached: DetachedWork
  close(): Promise<void>
}

function createReplay(options: false | StreamsOptions | undefined, store: Store, runtime: Runtime): Replay {
  const { now, uuid, after } = runtime
  const recordings = new Recordings({
    ...(options === false ? { isEnabled: false } : options),
    store,
    now,
    after,
    uuid,
  })
  const idempotency = lazyIdempotency({ store, now, uuid, after })
  const detached = new DetachedWork({ after })
  return {
    recordings,
    idempotency,
    detached,
    close: async () => {
      await detached.close()
      await Promise.all([recordings.flush(), idempotency.flush()])
    },
  }
}
