import { openaiCompatible, type BatchOptions, type GatewayOptions, type Store } from '../../../src/index.ts'

/** Other processes take over the items of a killed process after this time, in milliseconds. */
export const LEASE_MS = 2_000

/** Returns the options of each gateway of a farm. */
export function farmOptions(store: Store, upstream: string, batches: BatchOptions): GatewayOptions {
  return {
    providers: [
      openaiCompatible({
        name: 'up',
        baseUrl: upstream,
        apiKey: 'sk-upstream',
        models: [{ id: 'model', price: { input: 1, output: 2 }, contextWindowTokens: 10_000, maxOutputTokens: 1000 }],
      }),
    ],
    store,
    margin: 1,
    cache: false,
    batches: { leaseMs: LEASE_MS, ...batches },
  }
}
