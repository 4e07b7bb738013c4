import { lazy } from '../../core/async.ts'
import type { Identify } from '../../kernel/services.ts'
import type { Identification, IdentifyOptions } from './identify.ts'

/** Loads the code with the first request that has a context. */
export function createIdentify(options: IdentifyOptions): Identify {
  let loaded: Identification | undefined
  const load = lazy(async () => {
    const { createCustomerTable, Identification } = await import('./identify.ts')
    return (loaded = new Identification(options, createCustomerTable(options)))
  })
  return (request) =>
    loaded === undefined ? load().then(({ identify }) => identify(request)) : loaded.identify(request)
}
