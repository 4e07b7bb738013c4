import type { JsonObject } from './core/json.ts'
import { toDollars } from './core/money.ts'
import type { SemanticCacheOptions } from './cache/cache-options.ts'
import { createFlights } from './cache/flights.ts'
import { createSemanticCache, type SemanticCache } from './cache/semantic-cache.ts'
import type { Provider, Runtime, Store, Timeouts } from './core/ports.ts'
import { anthropicFormat } from './formats/anthropic/format.ts'
import { openaiFormat } from './formats/openai/format.ts'
import { responsesFormat } from './formats/responses/format.ts'
import type { Format } from './formats/format.ts'
import type { Budgets } from './governance/budgets.ts'
import type { GovernanceConfiguration } from './governance/configuration.ts'
import type { Keys } from './governance/keys.ts'
import type { RateLimits } from './governance/rate-limits.ts'
import { createRouter, type Endpoint } from './http/router.ts'
import { createRuntime, type RuntimeOptions } from './http/runtime.ts'
import {
  checkOptions,
  DEFAULT_LIMITS,
  DEFAULT_MARGIN,
  DEFAULT_TIMEOUTS,
  type Limits,
  type LogRecord,
  type MarginCall,
} from './options.ts'
import { asFailure } from './pipeline/refuse.ts'
import { createResolve } from './pipeline/resolve.ts'
import type { Parts } from './pipeline/stages.ts'
import { createTraffic, type Traffic } from './pipeline/traffic.ts'
import { createTurns } from './pipeline/turns.ts'
import { createRecords, type Books } from './pipeline/write-down.ts'
import { createDirectory, type CatalogOptions, type Directory } from './providers/catalog.ts'
import { smallModelFor } from './providers/small-model.ts'
import { createAudit, type AuditPage, type AuditQuery } from './records/audit.ts'
import { createMetrics } from './records/metrics.ts'
import { createRequestLog } from './records/request-log.ts'
import { adminEndpoints, type AdminParts } from './routes/admin.ts'
import { createAuthorize, type AdminOptions } from './routes/authorize.ts'
import { batchEndpoints } from './routes/batches.ts'
import { completions } from './routes/completions.ts'
import { embeddings } from './routes/embeddings.ts'
import { refusal, type Call, type Handler } from './routes/endpoint.ts'
import { countTokens } from './routes/count-tokens.ts'
import { inTraffic } from './routes/in-traffic.ts'
import { deleteResponse, getResponse } from './routes/responses.ts'
import type { MetricsReports } from './routes/metrics.ts'
import { getModel, listModels } from './routes/models.ts'
import { createFailover, type Failover } from './providers/failover.ts'
import { replayStream } from './routes/replay.ts'
import { health, ready, type ProviderStates } from './routes/status.ts'
import { guardStore } from './stores/guarded.ts'
import { memoryStore } from './stores/memory.ts'
import { breathe } from './tokens/breathe.ts'
import { createMeter } from './tokens/size.ts'
import { createTokenizer } from './tokens/tokenizer.ts'
import { createBatches, type Batches, type BatchOptions } from './wiring/batches.ts'
import { createReplay, type Replay, type StreamsOptions } from './wiring/replay.ts'
import { createGovernance, type Governance } from './wiring/governance.ts'
import { createMetricsReports } from './wiring/metrics.ts'
import { createSavings, type SavingsOptions } from './wiring/savings.ts'
import type { ShadowRecord } from './savings/shadow.ts'
import type { TierJob } from './savings/tier.ts'

/** How long equal requests wait for the first of them, in milliseconds, before they ask for themselves. */
const PATIENCE_MS = 30_000

/** Everything that a gateway can be told. Unknown options are refused at the start. */
export interface GatewayOptions {
  /** Who answers: `openai(…)`, `anthropic(…)`, `openaiCompatible(…)`, `extractive()`. At least one. */
  readonly providers: readonly Provider[]
  /** Keys, budgets and what must outlive a request. @default memoryStore(), which lives as long as the process */
  readonly store?: Store
  /** billed = theoretical cost × margin: a number, or a function of key and model. @default 1.5 */
  readonly margin?: number | ((call: MarginCall) => number)
  /** Models, prices and aliases of your own. */
  readonly catalog?: CatalogOptions
  /** Tiers 2 to 5. @default on, where they pay */
  readonly savings?: SavingsOptions
  /** Tier 1; `false` stores no answers. @default on, in memory, within each key, from similarity 0.95 */
  readonly cache?: false | CacheOptions
  /** Keys, budgets and rate limits that exist from the start. */
  readonly governance?: GovernanceConfiguration
  /** Who may administrate. @default nobody */
  readonly admin?: AdminOptions
  /** Messages that can be streamed again; `false` keeps none. @default on, for an hour */
  readonly streams?: false | StreamsOptions
  /** How this process works off message batches. */
  readonly batches?: BatchOptions
  /** The path under which the gateway is mounted, such as `/ai`. @default '' */
  readonly basePath?: string
  readonly limits?: Partial<Limits>
  /** Milliseconds. @default { connect: 10_000, firstByte: 120_000, idle: 60_000, total: 600_000 } */
  readonly timeouts?: Partial<Timeouts>
  /** Gets each line of the request log. @default none is written */
  readonly log?: (record: LogRecord) => void
  readonly runtime?: RuntimeOptions
}

/** See docs/cache.md. */
export type CacheOptions = Omit<SemanticCacheOptions, 'runtime' | 'pause'>

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
  /** Tier 1: forgets stored answers, all or those of one key. */
  readonly cache: { readonly clear: (which?: { readonly key?: string }) => Promise<void> }
  /**
   * Works off message batches until nothing can be done at the moment: for hosts that sleep between requests. A process
   * that serves requests does so by itself.
   */
  readonly batches: { readonly work: () => Promise<void> }
  /**
   * Ends detached work, then upstream connections, and closes the store. Requests under way are not waited for: end the
   * server first.
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
  const failover = createFailover({ runtime, timeouts })
  const books = {
    audit: createAudit({ store }),
    metrics: createMetrics(runtime.now()),
    log: createRequestLog(options.log),
  }
  const governance = createGovernance(options.governance, {
    store,
    runtime,
    onFailure: (cause) => books.log.event('ERROR', `configuration not in place: ${reasonOf(cause)}`, runtime.now()),
  })
  const cache = options.cache === false ? undefined : createSemanticCache({ pause: breathe, ...options.cache, runtime })
  const replay = createReplay(options.streams, store, runtime)
  const parts = createParts(options, {
    runtime,
    store,
    governance,
    failover,
    directory,
    timeouts,
    books,
    cache,
    replay,
  })
  const states = (): Record<string, boolean> => {
    const circuits = failover.circuits()
    return Object.fromEntries(options.providers.map(({ name }) => [name, !(name in circuits)]))
  }
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
  const route = createRouter(endpoints({ parts, directory, store, states, basePath, admin, traffic, batches }))

  const answer = async (call: Call): Promise<Response> => {
    try {
      const { handle, variables } = route(call.request.method, call.url.pathname)
      return await handle({ ...call, variables })
    } catch (error) {
      const rate = await governance.ledger.status(undefined)
      return refusal(asFailure(error), call.id, formatOf(call), rate)
    }
  }

  return {
    fetch: (request) => {
      batches.start()
      return answer({
        id: `req_${runtime.uuid().replaceAll('-', '')}`,
        startedAt: runtime.now(),
        request,
        url: new URL(request.url),
        variables: {},
      })
    },
    keys,
    budgets,
    rateLimits,
    metrics,
    audit: { read: books.audit.read },
    cache: { clear: async (which) => cache?.clear(which) },
    batches: { work: batches.work.work },
    close: async () => {
      await batches.work.stop()
      await replay.close()
      await governance.ledger.retry()
      await runtime.close()
      await store.close()
    },
  }
}

/** Errors of paths that belong to no format follow the client: those of the message format send its version. */
function formatOf({ request, url }: Call): Format {
  const isMessages = url.pathname.includes('/v1/messages')
  return isMessages || request.headers.has('anthropic-version') ? anthropicFormat : openaiFormat
}

/** Our own words; those of a store may hold its address. */
function reasonOf(cause: unknown): string {
  return asFailure(cause).message
}

function createParts(
  options: GatewayOptions,
  rooms: {
    readonly runtime: Runtime
    readonly store: Store
    readonly governance: Governance
    readonly directory: Directory
    readonly failover: Failover
    readonly timeouts: Timeouts
    readonly books: Omit<Books, 'now'>
    readonly cache: SemanticCache | undefined
    readonly replay: Replay
  },
): Parts {
  const { runtime, governance, directory, timeouts } = rooms
  const { margin = DEFAULT_MARGIN } = options
  const meter = createMeter(createTokenizer())
  return {
    findKey: governance.findKey,
    ...(rooms.cache !== undefined && {
      memory: { cache: rooms.cache, flights: createFlights({ patience: { ms: PATIENCE_MS, after: runtime.after } }) },
    }),
    resolve: createResolve(directory.resolve, runtime.random),
    ledger: governance.ledger,
    turns: createTurns(rooms.store),
    recordings: rooms.replay.recordings,
    idempotency: rooms.replay.idempotency,
    detached: rooms.replay.detached,
    waterfall: createSavings(options.savings, {
      store: rooms.store,
      meter,
      runtime,
      onShadow: (record, job) => rooms.books.log.event('INFO', 'shadow', runtime.now(), shadowFields(record, job)),
    }),
    rehearsal: () =>
      createSavings(options.savings, { store: unwritten(rooms.store), meter, runtime, onShadow: () => {} }),
    smallModel: (route) => smallModelFor(route, { runtime, timeouts }),
    upstream: rooms.failover,
    meter,
    margin:
      typeof margin === 'number' ? () => margin : (key, model) => margin({ keyId: key.id, keyName: key.name, model }),
    records: createRecords({ ...rooms.books, now: runtime.now }),
    limits: { ...DEFAULT_LIMITS, ...options.limits },
    timeouts,
    runtime,
  }
}

/** A store in which nothing changes. */
function unwritten(store: Store): Store {
  return { ...store, set: () => Promise.resolve() }
}

function shadowFields(record: ShadowRecord, job: TierJob): JsonObject {
  return {
    virtual_key_id: job.owner,
    model: job.modelName,
    strategy: record.strategy,
    original_tokens: record.originalTokens,
    optimized_tokens: record.optimizedTokens,
    small_models_usd: toDollars(record.spent),
  }
}

interface Rooms {
  readonly parts: Parts
  readonly directory: Directory
  readonly store: Store
  readonly states: ProviderStates
  readonly basePath: string
  readonly admin: Omit<AdminParts, 'line'>
  readonly traffic: Traffic
  readonly batches: Batches
}

/** Every path of the gateway: one look at this table is its HTTP interface. */
function endpoints(rooms: Rooms): readonly Endpoint<Handler>[] {
  const { parts, directory, store, states, basePath, admin, traffic, batches } = rooms
  const listed = directory.list().map(({ name, provider, model }) => ({ name, provider: provider.name, model }))
  const status = { store, providers: states, runtime: parts.runtime }
  const table: readonly Endpoint<Handler>[] = [
    { method: 'POST', path: '/v1/chat/completions', handle: inTraffic(traffic, completions(openaiFormat, parts)) },
    { method: 'POST', path: '/v1/messages', handle: inTraffic(traffic, completions(anthropicFormat, parts)) },
    { method: 'POST', path: '/v1/responses', handle: inTraffic(traffic, completions(responsesFormat, parts)) },
    { method: 'GET', path: '/v1/responses/:id', handle: getResponse(parts) },
    { method: 'DELETE', path: '/v1/responses/:id', handle: deleteResponse(parts) },
    { method: 'POST', path: '/v1/embeddings', handle: inTraffic(traffic, embeddings(parts)) },
    { method: 'POST', path: '/v1/messages/:id/streams', handle: replayStream(anthropicFormat, parts) },
    { method: 'GET', path: '/v1/models', handle: listModels(listed, parts) },
    { method: 'GET', path: '/v1/models/*id', handle: getModel(listed, parts) },
    { method: 'GET', path: '/health', handle: health(status) },
    { method: 'GET', path: '/ready', handle: ready(status) },
    { method: 'POST', path: '/v1/messages/count_tokens', handle: inTraffic(traffic, countTokens(parts)) },
    ...batchEndpoints({ book: batches.book, wake: batches.work.wake, line: parts, basePath }),
    ...adminEndpoints({ ...admin, line: parts }),
  ]
  return table.map((endpoint) => ({ ...endpoint, path: basePath + endpoint.path }))
}
