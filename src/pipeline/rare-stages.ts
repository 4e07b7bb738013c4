/**
 * Stages that few requests need, loaded when the first one is needed. They are one module, because each separately
 * loaded module splits the code that it shares with the rest of the gateway into further chunks.
 */
export { respondInBackground } from './background.ts'
export { explain } from './explain.ts'
