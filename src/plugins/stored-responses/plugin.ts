import { lazy } from '../../core/async.ts'
import type { Store } from '../../core/store.ts'
import type { BuiltInPlugin } from '../../kernel/services.ts'
import type { StoredResponses } from './stored-responses.ts'

/**
 * Stores responses of the responses format, so that later requests can refer to them, and follows those that a vendor
 * generates in the background.
 */
export function storedResponsesPlugin(store: Store): BuiltInPlugin {
  /** Set before the first response, because `completeBody` runs for each request. */
  let loaded: StoredResponses | undefined
  const load = lazy(async () => {
    const { createStoredResponses } = await import('./stored-responses.ts')
    return (loaded = createStoredResponses(store))
  })
  return {
    endpoints: async (services) => (await load()).endpoints(services),
    completeBody: (format, { scope }, received) => load().then(({ turns }) => turns.recall(format, scope, received)),
    onUnfinished: async (responded, completion, services) =>
      (await load()).respondInBackground(responded, completion, services),
    // A response in progress has no metrics yet. Its provider stores it.
    onResponse: (responded, { body, writeMetrics }, services) =>
      writeMetrics === undefined ? undefined : loaded?.store(responded, body, services),
    onStream: (responded, _stream, services) => loaded?.follow(responded, services),
    purge: async (scope) => (await load()).turns.purge(scope),
  }
}
