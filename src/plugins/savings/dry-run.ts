import {
  createPromptMarker,
  createSavings,
  type MarkPrompt,
  type SavingsDependencies,
  type SavingsOptions,
} from './options.ts'
import { NO_OBSERVER } from './shadow.ts'
import type { Waterfall } from './tier.ts'

/** Omits the embedder, because its calls may cost money. */
export function createDryRun(
  savings: SavingsOptions,
  dependencies: SavingsDependencies,
): { readonly waterfall: Waterfall; readonly markPrompt: MarkPrompt | undefined } {
  const { embedder: _, ...options } = savings
  const { store } = dependencies
  const dryDependencies = {
    ...dependencies,
    store: { get: (key: string) => store.get(key), set: () => Promise.resolve() },
    explains: true,
  }
  return {
    waterfall: createSavings(options, dryDependencies, NO_OBSERVER),
    markPrompt: createPromptMarker(options, dryDependencies),
  }
}
