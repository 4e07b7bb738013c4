/**
 * The types of a store of your own: for keys, budgets and records, and for the responses and vectors of the cache.
 * See docs/guides/write-a-store.md.
 *
 * @module
 */
export {
  quotaExceededError,
  type Charge,
  type Claim,
  type Level,
  type LogEntry,
  type LogQuery,
  type NewLogEntry,
  type Quota,
  type ReserveRequest,
  type ReserveResult,
  type SettledEntry,
  type Settlement,
  type Store,
  type Tally,
  type WriteOptions,
} from './core/store.ts'
export type {
  ResponseClaims,
  ResponseStore,
  CachedResponse,
  Embedder,
  Neighbor,
  StoreSize,
  StreamValues,
  VectorIndex,
} from './core/cache.ts'
export type { MaybePromise } from './core/async.ts'
