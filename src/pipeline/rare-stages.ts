/**
 * Stages that few requests take, loaded with the first of them. They are one module, because each module that is loaded by
 * itself splits the code that it shares with the rest of the gateway into further pieces.
 */
export { respondInBackground } from './background.ts'
export { explain } from './explain.ts'
export { repeat } from './repeat.ts'
