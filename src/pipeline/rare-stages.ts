/**
 * Stages for rare requests, loaded when the first such request arrives. Kept in one module, because each additional
 * dynamic import would split shared code into more chunks. The stages cannot be in on-demand.ts: plan.ts imports
 * on-demand.ts, and explain.ts imports plan.ts.
 */
export { deduplicate } from './deduplicate.ts'
export { explain } from './explain.ts'
export { respondInBackground, settleInBackground } from './background.ts'
