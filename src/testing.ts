/**
 * Contract tests for custom stores, vector indexes, answer stores and embedders:
 *
 * ```ts
 * import { testStore } from 'sluice/testing'
 * import { afterEach, beforeEach, describe, expect, it } from 'vitest'
 *
 * testStore('myStore', async (clock) => myStore({ now: clock.now }), { afterEach, beforeEach, describe, expect, it })
 * ```
 *
 * @module
 */
export { testStore } from './testing/store-contract.ts'
export { testAnswerStore, testEmbedder, testVectorIndex, type IndexLimits } from './testing/cache-contracts.ts'
export type { Expectation, MakeStore, Matchers, TestApi, TestClock } from './testing/store-suite.ts'
