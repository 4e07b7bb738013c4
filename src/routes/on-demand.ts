/**
 * The handlers that are loaded with the first request to one of their paths. They are one module, because each module that
 * is loaded by itself splits the code that it shares with the rest of the gateway into further pieces.
 */
export { adminEndpoints } from './admin.ts'
export { createAuthorize } from './authorize.ts'
export { batchHandlers } from './batches.ts'
export { countTokens } from './count-tokens.ts'
export { embeddings } from './embeddings.ts'
export { getModel, listModels } from './models.ts'
export { replayStream } from './replay.ts'
export { responseHandlers } from './responses.ts'
export { health, ready } from './status.ts'
export { writePrometheus } from '../records/prometheus.ts'
