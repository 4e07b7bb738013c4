import type { Provider, ProviderState, ProviderStates } from '../core/ports.ts'
import type { CircuitReport } from './circuit-breaker.ts'

/** Returns the state of each provider. `circuits` are reports by `<provider>/<model_id>`. */
export function providerStates(
  providers: readonly Pick<Provider, 'name'>[],
  circuits: Readonly<Record<string, CircuitReport>>,
): ProviderStates {
  const reports = Object.entries(circuits)
  return Object.fromEntries(
    providers.map(({ name }) => {
      const own = reports.filter(([circuit]) => circuit.startsWith(`${name}/`)).map(([, report]) => report)
      return [name, stateOf(own)]
    }),
  )
}

/** A key whose requests fail must not make the provider, or this process, unavailable to other keys. */
function stateOf(reports: readonly CircuitReport[]): ProviderState {
  if (reports.every(({ state }) => state === 'closed')) return 'healthy'
  return reports.every(({ state, isForAllKeys }) => state === 'open' && isForAllKeys) ? 'away' : 'degraded'
}
