/**
 * Stages of rare requests, loaded with the first such request. The stages are in one module, because each dynamic
 * import splits shared code into further chunks. They cannot be in on-demand.ts: plan.ts imports on-demand.ts, and
 * explain.ts imports plan.ts.
 */
export { respondInBackground } from './background.ts'
export { explain } from './explain.ts'
