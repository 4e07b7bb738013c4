export { testStore } from './testing/store-contract.ts'
export { testAnswerStore, testEmbedder, testVectorIndex, type IndexLimits } from './testing/cache-contracts.ts'
export type { Expectation, MakeStore, Matchers, TestApi, TestClock } from './testing/store-suite.ts'
