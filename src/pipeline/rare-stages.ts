/**
 * Stages of rare requests, which the first such request loads. They are one module, because each dynamic import splits
 * shared code into further chunks. They cannot be part of on-demand.ts, which plan.ts imports: explain.ts imports plan.ts.
 */
export { respondInBackground } from './background.ts'
export { explain } from './explain.ts'
