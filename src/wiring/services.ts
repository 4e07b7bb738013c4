import type { SemanticCache } from '../cache/semantic-cache.ts'
import { createSingleFlight } from '../cache/single-flight.ts'
import { toDollars } from '../core/money.ts'
import type { Runtime, Timeouts } from '../core/ports.ts'
import type { Store } from '../core/store.ts'
import { BodyCapacity } from '../http/body.ts'
import { bodyLimitsOf } from '../pipeline/parse-request.ts'
import { createResolve } from '../pipeline/admission.ts'
import { createWriteContext } from '../pipeline/response.ts'
import type { Limits, Services, Turns } from '../pipeline/services.ts'
import { createObservers, type ObserverTargets } from '../pipeline/settle.ts'
import type { ModelDirectory } from '../providers/catalog.ts'
import type { Failover } from '../providers/failover.ts'
import { smallModelFor, createPromptCache, createSavings, type SavingsOptions } from './savings.ts'
import type { LogEventFields, RequestLog } from '../records/request-log.ts'
import type { ShadowRecord, TierJob } from '../savings/tier.ts'
import { createMeter, createTokenizer } from '../tokens/meter.ts'
import type { Governance } from './governance.ts'
import type { VectorIndex } from '../core/cache-ports.ts'
import type { SettlementCounts } from '../governance/settlements.ts'
import type { Audit } from '../records/audit.ts'
import type { Metrics } from '../records/metrics.ts'
import type { MetricsReports } from '../routes/info.ts'
import { falseOr, type OptionCheck, optionsOf, integerFrom } from '../core/option-checks.ts'
import { DetachedWork } from '../replay/lifetime.ts'
import { lazy } from '../core/async.ts'
import type { Idempotency, IdempotencyOptions } from '../replay/idempotency.ts'
import { Recordings } from '../replay/recordings.ts'

export interface ServiceDependencies {
  readonly runtime: Runtime
  readonly store: Store
  readonly governance: Governance
  readonly directory: ModelDirectory
  readonly failover: Failover
  readonly timeouts: Timeouts
  readonly storeTimeoutMs: number
  readonly limits: Limits
  readonly observers: Omit<ObserverTargets, 'now'>
  readonly cache: SemanticCache | undefined
  readonly replay: Replay
  readonly savings: SavingsOptions | undefined
  readonly margin: Services['margin']
  readonly isLossy: boolean
}

/**
 * Maximum time that a request waits for an identical request, in milliseconds. After that, the request calls the
 * upstream itself.
 */
const FOLLOW_TIMEOUT_MS = 30_000

export function createServices(dependencies: ServiceDependencies): Services {
  const { runtime, store, governance, directory, timeouts, limits, observers, cache, replay, savings } = dependencies
  const meter = createMeter(createTokenizer(), () => crypto.getRandomValues(new Uint32Array(1))[0] ?? 0)
  const requestObservers = createObservers({ ...observers, now: runtime.now })
  const timeout = { ms: FOLLOW_TIMEOUT_MS, after: runtime.after }
  return {
    findKey: governance.findKey,
    ...(cache !== undefined && { answerCache: { cache, singleFlight: createSingleFlight({ timeout }) } }),
    resolve: createResolve(directory, runtime.random),
    provider: directory.provider,
    ledger: governance.ledger,
    turns: lazyTurns(store),
    recordings: replay.recordings,
    idempotency: replay.idempotency,
    detached: replay.detached,
    waterfall: createSavings(savings, {
      store,
      meter,
      runtime,
      onShadow: (record, job) => observers.log.event('INFO', 'shadow', runtime.now(), shadowFields(record, job)),
      onShadowFailure: (cause) => requestObservers.reportFailure('the shadow run of a savings tier failed', cause),
    }),
    promptCache: createPromptCache(savings, { store, runtime }),
    dryRun: () => {
      const dryRunDependencies = { store: ignoreSet(store), meter, runtime, ...NO_SHADOW_REPORTS }
      // The embedder is omitted, because its calls may cost money.
      const { embedder: _, ...withoutEmbedder } = savings ?? {}
      return {
        waterfall: createSavings(withoutEmbedder, dryRunDependencies),
        promptCache: createPromptCache(savings, dryRunDependencies),
      }
    },
    smallModel: (route) => smallModelFor(route, { runtime, timeouts }),
    upstream: dependencies.failover,
    meter,
    margin: dependencies.margin,
    observers: requestObservers,
    limits,
    bodyLimits: bodyLimitsOf({ limits, runtime }),
    bodyCapacity: new BodyCapacity({
      maxBytes: limits.bodyBytesPerKey,
      waitMs: limits.bodyReadMs,
      after: runtime.after,
    }),
    isLossy: dependencies.isLossy,
    timeouts,
    storeTimeoutMs: dependencies.storeTimeoutMs,
    runtime,
  }
}

const NO_SHADOW_REPORTS = { onShadow: () => {}, onShadowFailure: () => {} }

/** Returns a store for dry runs, whose `set` has no effect. */
function ignoreSet(store: Store): Store {
  return { ...store, set: () => Promise.resolve() }
}

function shadowFields(record: ShadowRecord, job: TierJob): LogEventFields {
  return {
    virtual_key_id: job.owner,
    model: job.modelName,
    strategy: record.strategy,
    original_tokens: record.originalTokens,
    optimized_tokens: record.optimizedTokens,
    small_models_usd: toDollars(record.spent),
  }
}

type WarningSource = Pick<Store | VectorIndex, 'warnings'>

/**
 * Returns a function that logs each store's warnings once. The function is called for each request, so that creating a
 * gateway whose configuration has no keys or budgets does no I/O. If a store fails, the next request reads the warnings
 * again.
 */
export function createWarningLogger(
  sources: readonly (WarningSource | undefined)[],
  report: (warning: string) => void,
): () => void {
  let isLogged = !sources.some((source) => source?.warnings !== undefined)
  const logWarnings = async (): Promise<void> => {
    try {
      const warnings = await Promise.all(sources.map((source) => source?.warnings?.() ?? []))
      for (const warning of new Set(warnings.flat())) report(warning)
    } catch {
      isLogged = false
    }
  }
  return () => {
    if (isLogged) return
    isLogged = true
    void logWarnings()
  }
}

export function createMetricsReports(dependencies: {
  readonly metrics: Metrics
  readonly audit: Pick<Audit, 'dropped'>
  readonly log: Pick<RequestLog, 'dropped'>
  readonly cache: Pick<SemanticCache, 'stats'> | undefined
  readonly now: () => number
  readonly unsettled: () => SettlementCounts
}): MetricsReports {
  const { metrics, audit, log, cache, now, unsettled } = dependencies
  return {
    summary: () => metrics.summary(now()),
    cache: () => {
      const { hitRate = 0, totalRequests = 0, hits = 0, misses = 0 } = cache?.stats() ?? {}
      return { hitRate, totalRequests, cacheHits: hits, cacheMisses: misses }
    },
    prometheus: async () => {
      const { writePrometheus } = await import('./fallback-handler.ts')
      const { waiting, dropped } = unsettled()
      const drops = { log: log.dropped(), audit: audit.dropped(), settlement: dropped }
      return writePrometheus(metrics.totals(), drops, waiting)
    },
  }
}

/** Options of recorded streams. See docs/streams.md. Sizes count two bytes per UTF-16 code unit. */
export interface StreamsOptions {
  /** Time for which a finished stream can be replayed, in seconds. @default 3600 */
  readonly retentionSeconds?: number
  /** Maximum number of concurrent recordings. Further streams are served without a recording. @default 10_000 */
  readonly entries?: number
  /** Maximum size of all concurrent recordings, in bytes. @default 67_108_864 (64 MiB) */
  readonly bytes?: number
  /** Maximum size of one recording, in bytes. @default 8_388_608 (8 MiB) */
  readonly maxBytesPerStream?: number
}

export const checkStreams: OptionCheck = falseOr(
  optionsOf(
    {
      retentionSeconds: integerFrom(1),
      entries: integerFrom(1),
      bytes: integerFrom(1),
      maxBytesPerStream: integerFrom(1),
    },
    [],
    'false or an object with retentionSeconds, entries, bytes and maxBytesPerStream',
  ),
)

/** State that outlives a response. */
export interface Replay {
  readonly recordings: Recordings
  readonly idempotency: Pick<Idempotency, 'claim' | 'flush'>
  readonly detached: DetachedWork
  /** Ends detached work and waits for it, at most five seconds. Then waits until recordings and answers are stored. */
  close(): Promise<void>
}

export function createReplay(options: false | StreamsOptions | undefined, store: Store, runtime: Runtime): Replay {
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

/** Loads the idempotency module on the first request with an Idempotency-Key. */
function lazyIdempotency(options: IdempotencyOptions): Replay['idempotency'] {
  let loaded: Idempotency | undefined
  const load = lazy(async () => {
    const { Idempotency } = await import('../replay/idempotency.ts')
    return (loaded = new Idempotency(options))
  })
  return {
    claim: async (request) => (await load()).claim(request),
    flush: async () => loaded?.flush(),
  }
}

/** Loads the turns module on the first request in a format whose turns the gateway stores. */
function lazyTurns(store: Store): Turns {
  const load = lazy(async () => (await import('../pipeline/turns.ts')).createTurns(store))
  return {
    recall: ({ turns: format }, key, body) =>
      format === undefined ? { body } : load().then((turns) => turns.recall(format, key, body)),
    store: (answered, serialized) => {
      const { turns: format } = answered.format
      if (format === undefined || serialized === undefined) return undefined
      const turn = format.turnToStore(createWriteContext(answered), serialized)
      return turn === undefined ? undefined : load().then((turns) => turns.store(answered, format, turn))
    },
    find: async (key, id) => (await load()).find(key, id),
    findInput: async (key, id) => (await load()).findInput(key, id),
    findProvider: async (key, id) => (await load()).findProvider(key, id),
    storeProvider: async (key, ids, provider) => (await load()).storeProvider(key, ids, provider),
    setUnsettled: async (key, id, isUnsettled) => (await load()).setUnsettled(key, id, isUnsettled),
    isUnsettled: async (key, id) => (await load()).isUnsettled(key, id),
    delete: async (key, id) => (await load()).delete(key, id),
  }
}
