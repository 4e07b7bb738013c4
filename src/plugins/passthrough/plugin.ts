import { GatewayError } from '../../core/errors.ts'
import type { Provider } from '../../core/ports.ts'
import type { Store } from '../../core/store.ts'
import type { BuiltInPlugin } from '../../kernel/services.ts'
import type { PassthroughOptions } from './parse-passthrough.ts'

/** Forwards vendor endpoints without translation. Throws for the name of a provider that is not configured. */
export function passthroughPlugin(
  options: PassthroughOptions,
  store: Store,
  findProvider: (name: string) => Provider | undefined,
): BuiltInPlugin {
  for (const [name, { provider }] of Object.entries(options)) {
    if (provider === undefined || findProvider(provider) !== undefined) continue
    const param = `passthrough.${name}.provider`
    throw new GatewayError(
      'invalid-request',
      `createGateway: ${param}: no provider "${provider}" is configured. Use the name of a configured provider.`,
      { param },
    )
  }
  return {
    endpoints: async (services) => (await import('./routes.ts')).passthroughEndpoints({ services, store, options }),
    purge: async (scope, _store, services) => (await import('./routes.ts')).purgeFiles(scope, store, services),
  }
}
