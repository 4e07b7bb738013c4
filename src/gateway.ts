import { withDefaults } from './core/check-options.ts'
import type { HttpHandler, HttpHandling } from './core/http.ts'
import type { Runtime } from './core/ports.ts'
import type { Store } from './core/store.ts'
import { createGovernance, type Governance } from './plugins/admin/governance.ts'
import type { Budgets, Keys, RateLimits } from './plugins/admin/admin-records.ts'
import { adminPlugin } from './plugins/admin/plugin.ts'
import { createAudit, type AuditPage, type AuditQuery } from './plugins/audit/audit.ts'
import { auditPlugin } from './plugins/audit/plugin.ts'
import { createBatches } from './plugins/batches/plugin.ts'
import { createBudgetEvents } from './plugins/budget-events/plugin.ts'
import { createCache } from './plugins/cache/plugin.ts'
import type { Customers } from './plugins/customers/customer-api.ts'
import { createCustomers } from './plugins/customers/plugin.ts'
import type { Reconciling } from './plugins/reconcile/reconcile-api.ts'
import { createUsage } from './plugins/usage/plugin.ts'
import type { UsageReporting } from './plugins/usage/usage-api.ts'
import { customPlugins } from './plugins/custom/plugin.ts'
import { embeddingsPlugin } from './plugins/embeddings/plugin.ts'
import { explainPlugin } from './plugins/explain/plugin.ts'
import { idempotencyPlugin } from './plugins/idempotency/plugin.ts'
import { Metrics } from './plugins/metrics/metrics.ts'
import { metricsPlugin } from './plugins/metrics/plugin.ts'
import type { MetricsReports } from './plugins/metrics/prometheus.ts'
import { createMetricsReports } from './plugins/metrics/reports.ts'
import { modelsPlugin } from './plugins/models/plugin.ts'
import { createOutbox } from './plugins/outbox/plugin.ts'
import { passthroughPlugin } from './plugins/passthrough/plugin.ts'
import { recordingsPlugin } from './plugins/recordings/plugin.ts'
import { requestLogPlugin } from './plugins/request-log/plugin.ts'
import { createRequestLog, type RequestLog } from './plugins/request-log/request-log.ts'
import type { ExplainInput, ExplainSavingsOptions, SavingsExplanation } from './plugins/savings/explain-plans.ts'
import { savingsPlugin } from './plugins/savings/plugin.ts'
import { statusPlugin } from './plugins/status/plugin.ts'
import { storedResponsesPlugin } from './plugins/stored-responses/plugin.ts'
import { tokenCountsPlugin } from './plugins/token-counts/plugin.ts'
import type { CallerContext } from './governance/caller.ts'
import { readContext } from './governance/context.ts'
import type { LevelContext } from './governance/windows.ts'
import { BodyCapacity } from './http/body.ts'
import { lazyFetch } from './http/lazy-fetch.ts'
import type { FetchHandler } from './http/web-handler.ts'
import { createHandler } from './kernel/endpoints.ts'
import { RecentOutputs } from './kernel/recent-outputs.ts'
import { RequestTracker } from './kernel/request-tracker.ts'
import { createResolve } from './kernel/resolve-model.ts'
import { type BuiltInPlugin, collectHooks, type EventLog, type Services } from './kernel/services.ts'
import {
  checkGatewayOptions,
  createRuntime,
  DEFAULT_LIMITS,
  DEFAULT_TIMEOUTS,
  policiesOf,
  type GatewayOptions,
} from './options.ts'
import { createModelDirectory } from './providers/catalog.ts'
import { createCircuitBreaker } from './providers/circuit-breaker.ts'
import { createFailover } from './providers/failover.ts'
import { smallModelFor } from './providers/small-model.ts'
import { listedStemOf } from './providers/vendor.ts'
import { guardStore } from './stores/store-rules.ts'
import { memoryStore } from './stores/memory.ts'
import { createWarningLogger } from './stores/warnings.ts'
import { EventCapacity } from './streams/capacity.ts'
import { DetachedWork } from './streams/shared-work.ts'
import { yieldToEventLoop } from './tokens/event-loop.ts'
import { PromptMeter, createTokenizer } from './tokens/meter.ts'
import { asFailure } from './kernel/failures.ts'
import { bodyLimitsOf } from './kernel/limits.ts'

/** A gateway for one caller. */
export interface BoundGateway {
  readonly fetch: FetchHandler
  readonly handle: HttpHandler
}

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
  /**
   * Returns the gateway for one caller whom the application has identified. Requests need no virtual key then; a key that
   * is sent applies as well. Throws `invalid-request` for an invalid context. See docs/customers.md.
   *
   * @example
   * const gateway = createGateway({ providers: [openai()], plans: { pro: { budgets: [{ limitUsd: 20, window: '1M' }] } } })
   * const { fetch } = gateway.with({ customer: 'acme', user: 'u_17', session: 'run_42' })
   */
  readonly with: (context: CallerContext) => BoundGateway
  /** Virtual keys: the secrets that authenticate callers, with their limits. */
  readonly keys: Keys
  /** Budgets that several keys share by `budgetId`. */
  readonly budgets: Budgets
  /** Rate limits that several keys share by `rateLimitId`. */
  readonly rateLimits: RateLimits
  /** Customers: who pays for requests with a context, with their plans, budgets and parents. */
  readonly customers: Customers
  /** Usage of customers, users, sessions, keys, models, providers and tags, for invoices and pages of your product. */
  readonly usage: UsageReporting & Reconciling
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
  /** The semantic cache. Neither method has an effect with `cache: false`. */
  readonly cache: {
    /** Removes all stored responses, or those of the key with the id `keyId`. */
    readonly clear: (filter?: { readonly keyId?: string }) => Promise<void>
    /** Reports that the request with this id (`X-Request-Id`) received the stored response to a different question. */
    readonly reportWrongHit: (requestId: string) => Promise<void>
  }
  /**
   * Processes message batches until no more items can currently be processed. For hosts that are suspended between
   * requests. On other hosts, requests start the processing. No effect with `batches: false`.
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
 *
 * @example
 * const gateway = createGateway({ providers: [openai(), anthropic()], store: memoryStore(), margin: 1.5 })
 * const { value: apiKey } = await gateway.keys.create({ name: 'my app', budgetLimitCents: 1000 })
 * const response = await gateway.fetch('http://gateway/v1/chat/completions', {
 *   method: 'POST',
 *   headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
 *   body: JSON.stringify({ model: 'openai/gpt-5-mini', messages: [{ role: 'user', content: 'Hello' }] }),
 * })
 * console.log(response.headers.get('x-svc-billed-amount'))
 */
export function createGateway(options: GatewayOptions): Gateway {
  checkGatewayOptions(options)
  const { basePath = '', publicUrl, admin, cache: cacheOptions = {}, savings = {}, streams } = options
  const runtime = createRuntime(options.runtime)
  const store = createStore(options, runtime)
  const directory = createModelDirectory({ providers: options.providers, catalog: options.catalog })
  const timeouts = withDefaults(DEFAULT_TIMEOUTS, options.timeouts)
  const failover = createFailover({ runtime, timeouts, breaker: createCircuitBreaker(options.circuitBreaker) })
  const meter = new PromptMeter(createTokenizer(), () => crypto.getRandomValues(new Uint32Array(1))[0] ?? 0)
  const requestLog = createRequestLog(options.log, options.runtime?.stderr)
  const log = createEventLog(requestLog, runtime)
  if (store.local === true) log.warning(LOCAL_STORE_WARNING)
  const policies = policiesOf(options)
  const servesWithoutStore = policies.onStoreFailure === 'allow'
  const levelContext = (): LevelContext => governance.ledger.levelContext
  const customers = createCustomers(
    {
      store,
      now: runtime.now,
      uuid: runtime.uuid,
      cacheMs: options.keyCacheMs,
      servesStale: servesWithoutStore,
      plans: options.plans ?? {},
      customers: options.customers ?? {},
      levelContext,
    },
    {
      whenConfigured: () => governance.whenConfigured(),
      admin,
      purge: async (scope) => {
        for (const purge of services.hooks.purge) await purge(scope, store, services)
      },
    },
  )
  const eventOptions = { plugins: options.plugins, budgetWarnings: options.budgetWarnings, store, runtime, log }
  const budgetEvents = createBudgetEvents(eventOptions)
  const outbox = createOutbox(eventOptions)
  const governance: Governance = createGovernance(options.governance, {
    store,
    customers: customers.configuration,
    runtime,
    maxRequestMs: timeouts.totalMs,
    keyCacheMs: options.keyCacheMs,
    allowsUnreservedRequests: servesWithoutStore,
    budgetObserver: budgetEvents?.load,
    loadRecords: outbox?.load,
    onFailure: (cause) => log.failure('configuration not applied', asFailure(cause)),
    onSettlementDropped: ({ reservationId }) =>
      log.failure('settlement dropped', new Error(SETTLEMENT_DROPPED), { reservation_id: reservationId }),
  })
  const { keys, budgets, rateLimits, adminRecords, ledger, findKey, findKeyById } = governance
  const { now, after, uuid } = runtime
  const usage = createUsage({ store, now, findLevels: customers.findLevels, levelContext }, admin)
  const audit = createAudit({ store })
  const metrics = new Metrics(now())
  const cache = cacheOptions === false ? undefined : createCache({ pause: yieldToEventLoop, ...cacheOptions, runtime })
  const reports = createMetricsReports({
    metrics,
    now,
    cacheCounts: () => cache?.stats(),
    drops: () => ({ log: requestLog.dropped(), audit: audit.dropped(), settlement: ledger.settlementCounts().dropped }),
    waitingSettlements: () => ledger.settlementCounts().waiting,
  })
  const batches = createBatches(options.batches, { store, findKeyById, basePath, publicUrl })

  // What may refuse a request comes before what answers it, and both before what costs money. The order of each hook
  // (test/kernel/hook-order.test.ts):
  //   checkHeaders     explain, savings
  //   completeBody     stored-responses
  //   onRequest        custom, explain
  //   checkRequest     custom
  //   deduplicate      idempotency
  //   changePrompt     custom
  //   changeInputs     custom
  //   onLookup         custom, cache
  //   optimizePrompt   savings
  //   checkResponse    custom
  //   onUnfinished     stored-responses
  //   onResponse       recordings, stored-responses, idempotency
  //   storesEvents     recordings, idempotency
  //   onStream         recordings, stored-responses, idempotency
  //   onFailure        idempotency
  //   settledEntries   outbox, audit
  //   onEnd            custom, metrics, request-log, audit
  //   purge            batches, recordings, stored-responses, idempotency, cache, savings, passthrough
  //   close            budget-events, outbox, custom, recordings, idempotency, cache
  const plugins: readonly BuiltInPlugin[] = [
    ...(budgetEvents === undefined ? [] : [budgetEvents.plugin]),
    ...(outbox === undefined ? [] : [outbox.plugin]),
    ...(options.plugins === undefined ? [] : [customPlugins(options.plugins, { runtime, log })]),
    explainPlugin(cache !== undefined),
    ...(batches === undefined ? [] : [batches.plugin]),
    recordingsPlugin(streams, { store, now, after, uuid }),
    storedResponsesPlugin(store),
    idempotencyPlugin({ store, now, uuid, after }),
    ...(cache === undefined ? [] : [cache.plugin]),
    savingsPlugin(savings, { store, meter, runtime }, { onShadow: (record) => metrics.recordTrial(record), log }),
    tokenCountsPlugin(),
    embeddingsPlugin(),
    passthroughPlugin(options.passthrough ?? {}, store, directory.provider),
    modelsPlugin(directory.list),
    statusPlugin({ store, providers: options.providers, circuits: failover.circuits, servesWithoutStore }),
    metricsPlugin(metrics, reports, admin),
    requestLogPlugin(requestLog),
    auditPlugin(audit, store, admin),
    adminPlugin(adminRecords, admin),
    customers.plugin,
    usage.plugin,
  ]

  const limits = withDefaults(DEFAULT_LIMITS, options.limits)
  const detached = new DetachedWork({ after })
  const services: Services = {
    findKey,
    identify: customers.identify,
    resolve: createResolve(directory, runtime.random),
    provider: directory.provider,
    ledger,
    hooks: collectHooks(plugins),
    upstream: failover,
    smallModel: (route, caller) => smallModelFor(route, { runtime, timeouts, caller: caller.upstream }),
    meter,
    margin: toMarginFunction(options.margin),
    recentOutputs: new RecentOutputs(),
    billsListPrice: options.billing?.cachedTokens === 'list',
    showsMargin: options.headers?.margin !== false,
    log,
    limits,
    policies,
    bodyLimits: bodyLimitsOf(limits, runtime),
    bodyCapacity: new BodyCapacity({ maxBytes: limits.bodyBytesPerKey, waitMs: limits.bodyReadMs, after }),
    eventCapacity: new EventCapacity(streams || {}),
    detached,
    requestTracker: new RequestTracker(),
    timeouts,
    storeTimeoutMs: options.storeTimeoutMs ?? STORE_TIMEOUT_MS,
    runtime,
  }

  const logStoreWarnings = createWarningLogger(
    [store, cacheOptions === false ? undefined : cacheOptions.index],
    (warning) => log.warning('store warning', { warning }),
  )
  const handle = createHandler(services, basePath, () => {
    batches?.start(services)
    budgetEvents?.start()
    outbox?.start()
    logStoreWarnings()
  })
  const close = inSequence(() =>
    closeAll(
      [
        async () => batches?.stop(),
        () => detached.close(),
        ...services.hooks.close,
        runtime.close,
        () => ledger.retry(),
        () => store.close(),
      ],
      (cause) => log.failure('a shutdown step failed', cause),
    ),
  )
  return {
    fetch: lazyFetch({ handle }),
    handle,
    with: (context) => {
      const own = readContext(context, 'gateway.with')
      const bound: HttpHandling = { handle: (request, sink) => handle(request, sink, own) }
      return { ...bound, fetch: lazyFetch(bound) }
    },
    keys,
    budgets,
    rateLimits,
    customers: customers.records,
    usage: {
      ...usage.usage,
      reconcile: async (query) => {
        const { reconcile } = await import('./plugins/reconcile/reconcile.ts')
        return reconcile(query, { store, report: usage.usage.report, plugins: options.plugins })
      },
    },
    metrics: reports,
    audit: { read: async (query) => (await import('./plugins/audit/routes.ts')).readAudit(store, query) },
    savings: {
      explain: async (input, explainOptions = {}) => {
        const { explainSavings } = await import('./plugins/savings/explain-plans.ts')
        return explainSavings(input, explainOptions, { savings, services })
      },
    },
    cache: {
      clear: async (filter) => cache?.clear(filter),
      reportWrongHit: async (requestId) => cache?.reportWrongHit(requestId),
    },
    batches: { work: async () => batches?.work(services) },
    close,
  }
}

const LOCAL_STORE_WARNING =
  'memoryStore() keeps keys, limits and budgets in this process only and loses them when the process ends'
const STORE_TIMEOUT_MS = 5_000
const STORE_CALL_SHARE = 0.4

function createStore(options: GatewayOptions, { now, after }: Pick<Runtime, 'now' | 'after'>): Store {
  shareClock(options)
  const { storeTimeoutMs = STORE_TIMEOUT_MS } = options
  return guardStore(options.store ?? memoryStore({ now }), {
    after,
    timeoutMs: Math.ceil(storeTimeoutMs * STORE_CALL_SHARE),
  })
}

/** Stores that compare the gateway's windows and expiries with another clock would reject or drop them. */
function shareClock({ runtime: { now } = {}, store, cache }: GatewayOptions): void {
  if (now === undefined) return
  const { responses = undefined, index = undefined } = cache === undefined || cache === false ? {} : cache
  for (const part of [store, responses, index]) part?.useClock?.(now)
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

const SETTLEMENT_DROPPED = 'The store rejected a settlement, or too many are waiting. Its request is not billed.'

function createEventLog(requestLog: RequestLog, { now }: Pick<Runtime, 'now'>): EventLog {
  return {
    failure: (event, cause, fields) => requestLog.failure(event, cause, now(), fields),
    warning: (event, fields) => requestLog.event('WARN', event, now(), fields),
    info: (event, fields) => requestLog.event('INFO', event, now(), fields),
  }
}

/** A second call could otherwise close the store while the first call is sending settlements. */
function inSequence(work: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> = Promise.resolve()
  return () => (running = running.catch(() => {}).then(work))
}
