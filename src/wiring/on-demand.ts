/**
 * Code that is loaded with the first request that is not a model call. It is one module, because each separately
 * loaded module splits the code that it shares with the rest of the gateway into further chunks.
 */
export { createAuthorize } from '../routes/admin.ts'
export { writePrometheus } from '../records/prometheus.ts'
export { furtherHandler } from './further-endpoints.ts'
