import type { Difference } from './guard.ts'

/** Statistics of the cache. GET /metrics/cache reports a part of them. */
export interface CacheStatistics {
  /** hits / totalRequests; 0 before the first. */
  readonly hitRate: number
  /** Look-ups, except those of requests that do not accept stored answers. */
  readonly totalRequests: number
  readonly hits: number
  readonly misses: number
  /** Hits on the same text. */
  readonly exactHits: number
  /** Candidates above the threshold that the guard refused, by their first difference. */
  readonly refused: Readonly<Partial<Record<Difference | 'verifier', number>>>
  /** Look-ups in which an embedder, index, store or verifier failed or was late. */
  readonly failures: number
  readonly entries: number
  readonly bytes: number
}

export interface Tallies {
  hits: number
  misses: number
  exactHits: number
  failures: number
  readonly refused: Map<Difference | 'verifier', number>
}

export function emptyTallies(): Tallies {
  return { hits: 0, misses: 0, exactHits: 0, failures: 0, refused: new Map() }
}

export function countRefusal(tallies: Tallies, reason: Difference | 'verifier'): void {
  tallies.refused.set(reason, (tallies.refused.get(reason) ?? 0) + 1)
}

export function statisticsOf(
  tallies: Tallies,
  size: { readonly entries: number; readonly bytes: number },
): CacheStatistics {
  const { hits, misses, exactHits, failures, refused } = tallies
  const totalRequests = hits + misses
  return {
    hitRate: totalRequests === 0 ? 0 : hits / totalRequests,
    totalRequests,
    hits,
    misses,
    exactHits,
    failures,
    refused: Object.fromEntries(refused),
    ...size,
  }
}
