import type { SemanticCache } from '../cache/semantic-cache.ts'
import { createSingleFlight } from '../cache/single-flight.ts'
import { toDollars } from '../core/money.ts'
import type { Runtime, Timeouts } from '../core/ports.ts'
import type { Store } from '../core/store.ts'
import { BodyCapacity } from '../pipeline/body-capacity.ts'
import { bodyLimitsOf } from '../pipeline/parse-request.ts'
import { createResolve } from '../pipeline/resolve.ts'
import type { Limits, Services } from '../pipeline/services.ts'
import { createTurns } from '../pipeline/turns.ts'
import { createObservers, type ObserverTargets } from '../pipeline/observe-requests.ts'
import type { Directory } from '../providers/catalog.ts'
import type { Failover } from '../providers/failover.ts'
import { smallModelFor } from '../providers/small-model.ts'
import type { LogEventFields, RequestLog } from '../records/request-log.ts'
import type { ShadowRecord, TierJob } from '../savings/tier.ts'
import { createMeter, createTokenizer } from '../tokens/meter.ts'
import type { Governance } from './governance.ts'
import type { Replay } from './replay.ts'
import { createPromptCache, createSavings, type SavingsOptions } from './savings.ts'
import type { VectorIndex } from '../core/cache-ports.ts'
import type { Unsettled } from '../governance/ledger.ts'
import type { Audit } from '../records/audit.ts'
import type { Metrics } from '../records/metrics.ts'
import type { MetricsReports } from '../routes/status.ts'

/** The parts from which the services of the pipeline are created. */
export interface ServiceSources {
  readonly runtime: Runtime
  readonly store: Store
  readonly governance: Governance
  readonly directory: Directory
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

/** Maximum time that a request waits for an identical one, in milliseconds, before it calls the upstream itself. */
const FOLLOW_TIMEOUT_MS = 30_000

export function createServices(sources: ServiceSources): Services {
  const {
    runtime,
    store,
    governance,
    directory,
    timeouts,
    limits,
    observers,
    cache,
    replay,
    savings,
    margin,
    isLossy,
  } = sources
  const meter = createMeter(createTokenizer(), () => crypto.getRandomValues(new Uint32Array(1))[0] ?? 0)
  const observing = createObservers({ ...observers, now: runtime.now })
  const timeout = { ms: FOLLOW_TIMEOUT_MS, after: runtime.after }
  return {
    findKey: governance.findKey,
    ...(cache !== undefined && { memory: { cache, singleFlight: createSingleFlight({ timeout }) } }),
    resolve: createResolve(directory, runtime.random),
    provider: directory.provider,
    ledger: governance.ledger,
    turns: createTurns(store),
    recordings: replay.recordings,
    idempotency: replay.idempotency,
    detached: replay.detached,
    waterfall: createSavings(savings, {
      store,
      meter,
      runtime,
      onShadow: (record, job) => observers.log.event('INFO', 'shadow', runtime.now(), shadowFields(record, job)),
      onShadowFailure: (cause) => observing.failed('the trial of a tier failed', cause),
    }),
    promptCache: createPromptCache(savings, { store, runtime }),
    dryRun: () => {
      const parts = { store: unwritten(store), meter, runtime, ...UNSEEN }
      // Calls of the embedder may cost money.
      const { embedder: _, ...free } = savings ?? {}
      return { waterfall: createSavings(free, parts), promptCache: createPromptCache(savings, parts) }
    },
    smallModel: (route) => smallModelFor(route, { runtime, timeouts }),
    upstream: sources.failover,
    meter,
    margin,
    observers: observing,
    limits,
    bodyLimits: bodyLimitsOf({ limits, runtime }),
    bodyCapacity: new BodyCapacity({
      maxBytes: limits.bodyBytesPerKey,
      waitMs: limits.bodyReadMs,
      after: runtime.after,
    }),
    isLossy,
    timeouts,
    storeTimeoutMs: sources.storeTimeoutMs,
    runtime,
  }
}

const UNSEEN = { onShadow: () => {}, onShadowFailure: () => {} }

/** Returns a store that ignores writes. */
function unwritten(store: Store): Store {
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

/** A part that reports the guarantees that its storage cannot give. */
type Warning = Pick<Store | VectorIndex, 'warnings'>

/**
 * Returns a function that logs each warning of the parts once. The gateway calls it on every request, because it does
 * no work before the first one. If a storage is down, the next request reads its warnings again.
 */
export function createStoreWarnings(
  parts: readonly (Warning | undefined)[],
  report: (warning: string) => void,
): () => void {
  let isAsked = !parts.some((part) => part?.warnings !== undefined)
  const ask = async (): Promise<void> => {
    try {
      const found = await Promise.all(parts.map((part) => part?.warnings?.() ?? []))
      for (const warning of new Set(found.flat())) report(warning)
    } catch {
      isAsked = false
    }
  }
  return () => {
    if (isAsked) return
    isAsked = true
    void ask()
  }
}

/** Creates the metrics of requests, costs, the cache and dropped records. */
export function createMetricsReports(parts: {
  readonly metrics: Metrics
  readonly audit: Pick<Audit, 'dropped'>
  readonly log: Pick<RequestLog, 'dropped'>
  readonly cache: Pick<SemanticCache, 'stats'> | undefined
  readonly now: () => number
  readonly unsettled: () => Unsettled
}): MetricsReports {
  const { metrics, audit, log, cache, now, unsettled } = parts
  return {
    summary: () => metrics.summary(now()),
    cache: () => {
      const { hitRate = 0, totalRequests = 0, hits = 0, misses = 0 } = cache?.stats() ?? {}
      return { hitRate, totalRequests, cacheHits: hits, cacheMisses: misses }
    },
    prometheus: async () => {
      const { writePrometheus } = await import('./on-demand.ts')
      const { waiting, dropped } = unsettled()
      const drops = { log: log.dropped(), audit: audit.dropped(), settlement: dropped }
      return writePrometheus(metrics.totals(), drops, waiting)
    },
  }
}
