import { lazy } from '../../core/async.ts'
import type { Idempotency, IdempotencyOptions } from './idempotency.ts'

export function lazyIdempotency(options: IdempotencyOptions): Pick<Idempotency, 'claim' | 'flush'> {
  let loaded: Idempotency | undefined
  const load = lazy(async () => {
    const { Idempotency } = await import('./idempotency.ts')
    return (loaded = new Idempotency(options))
  })
  return {
    claim: async (request) => (await load()).claim(request),
    flush: async () => loaded?.flush(),
  }
}
