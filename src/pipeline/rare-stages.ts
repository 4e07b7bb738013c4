/**
 * Stages for rare requests. The module is loaded on the first such request. The stages are in one module, because each
 * further dynamic import would split shared code into more chunks. They cannot be in on-demand.ts: plan.ts imports
 * on-demand.ts, and explain.ts imports plan.ts.
 */
export { respondInBackground } from './background.ts'
export { explain } from './explain.ts'
