/**
 * What is loaded with the first request that savings concern. It is one module, because each module that is loaded by
 * itself splits the code that it shares with the rest of the gateway into further pieces.
 */
export { createMemory } from './memory.ts'
export { markForCache } from './prompt-cache.ts'
export { createWaterfall } from './waterfall.ts'
