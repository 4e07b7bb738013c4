export { testProvider, type GatewayUnderTest, type ProviderSetup } from './testing/provider-contract.ts'
export { testStore } from './testing/store-contract.ts'
export { testAnswerStore, testEmbedder, testVectorIndex, type IndexLimits } from './testing/cache-contracts.ts'
export type { Expectation, MakeStore, Matchers, TestApi, TestClock } from './testing/store-suite.ts'
