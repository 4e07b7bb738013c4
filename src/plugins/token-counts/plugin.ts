import type { BuiltInPlugin } from '../../kernel/services.ts'

/** Counts the tokens of a prompt without answering it. */
export function tokenCountsPlugin(): BuiltInPlugin {
  return {
    endpoints: async (services) => (await import('./count-stages.ts')).countEndpoints(services),
  }
}
