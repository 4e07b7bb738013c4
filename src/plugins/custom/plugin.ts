import type { Plugin } from '../../kernel/plugin.ts'
import type { BuiltInPlugin, Services } from '../../kernel/services.ts'
import type * as hooks from './plugin-hooks.ts'

type Loaded = typeof hooks

/** Runs the plugins that the application passes. Their code is loaded with the first request. */
export function customPlugins(
  plugins: readonly Plugin[],
  { runtime, log }: Pick<Services, 'runtime' | 'log'>,
): BuiltInPlugin {
  const load = (): Promise<Loaded> => import('./plugin-hooks.ts')
  const withPlugins = (services: Services): hooks.CustomServices => ({ ...services, plugins })
  return {
    onRequest: async (parsed, services) => (await load()).onRequest(parsed, withPlugins(services)),
    checkRequest: async (authenticated, services, model) =>
      (await load()).checkRequest(authenticated, withPlugins(services), model),
    changePrompt: async (parsed, services) => (await load()).transformPrompt(parsed, withPlugins(services)),
    changeInputs: async (parsed, inputs, services) =>
      (await load()).transformMessages(parsed, inputs, withPlugins(services)),
    onLookup: async (reserved, services) => (await load()).onLookup(reserved, withPlugins(services)),
    checkResponse: async (responded, services) => (await load()).transformResponse(responded, withPlugins(services)),
    // After the response has left, so that an observer cannot delay it.
    onEnd: (_finished, exchange, outcome) => {
      const notify = (): void => {
        load()
          .then(({ onEnd }) => onEnd(exchange, outcome, { plugins, log, runtime }))
          .catch((cause: unknown) => log.failure('a plugin failed', cause))
      }
      runtime.after(0, notify)
    },
    close: async () => (await load()).closePlugins({ plugins, runtime }),
  }
}
