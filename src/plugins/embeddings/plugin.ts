import type { BuiltInPlugin } from '../../kernel/services.ts'

/** Serves `POST /v1/embeddings`. Its errors are written in the chat format. */
export function embeddingsPlugin(): BuiltInPlugin {
  return {
    endpoints: async (services) => (await import('./embedding-stages.ts')).embeddingEndpoints(services),
  }
}
