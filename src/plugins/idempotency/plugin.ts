import { lazy } from '../../core/async.ts'
import type { BuiltInPlugin } from '../../kernel/services.ts'
import type { Deduplication } from './deduplicate.ts'
import type { IdempotencyOptions } from './idempotency.ts'

/** Answers a repeated `Idempotency-Key` with the response to its first request. Loaded with the first key. */
export function idempotencyPlugin(options: IdempotencyOptions): BuiltInPlugin {
  let loaded: Deduplication | undefined
  const load = lazy(async () => (loaded = (await import('./deduplicate.ts')).createDeduplication(options)))
  return {
    deduplicate: (parsed, services) =>
      parsed.request.header('idempotency-key') === undefined ||
      load().then((deduplication) => deduplication.claim(parsed, services)),
    onResponse: (responded, response) => loaded?.remember(responded, response),
    storesEvents: (responded) => loaded?.isFirst(responded) === true,
    onStream: (responded, stream) => loaded?.share(responded, stream),
    onFailure: (exchange, response) => loaded?.fail(exchange, response),
    purge: async (scope) => (await load()).purge(scope),
    close: async () => loaded?.flush(),
  }
}
