import type { Runtime } from '../../core/ports.ts'
import type { Plugin } from '../../kernel/plugin.ts'
import type { Observers, Services } from '../../kernel/services.ts'

const loadHooks = () => import('../custom/plugin-hooks.ts')

/** Lets plugins observe the end of each request, after its response has left. */
export function observeWithPlugins(
  observers: Observers,
  plugins: readonly Plugin[] | undefined,
  runtime: Runtime,
): Observers {
  if (plugins === undefined) return observers
  return {
    ...observers,
    observeRequest: (exchange, outcome) => {
      const notify = (): void => {
        loadHooks()
          .then(({ onEnd }) => onEnd(exchange, outcome, { plugins, observers, runtime }))
          .catch((cause: unknown) => observers.reportFailure('a plugin failed', cause))
      }
      runtime.after(0, notify)
      return observers.observeRequest(exchange, outcome)
    },
  }
}

export async function closePlugins({ plugins, runtime }: Services): Promise<void> {
  if (plugins !== undefined) await (await loadHooks()).closePlugins({ plugins, runtime })
}
