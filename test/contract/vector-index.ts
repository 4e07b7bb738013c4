import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { VectorIndex } from '../../src/core/cache.ts'
import type { TestClock } from '../../src/testing/store-suite.ts'
import { testVectorIndex as declareTests, type IndexLimits } from '../../src/testing/cache-contracts.ts'

/** Declares the published tests with vitest. */
export function testVectorIndex(
  name: string,
  make: (clock: TestClock) => Promise<VectorIndex>,
  limits: IndexLimits,
): void {
  declareTests(name, make, limits, { afterEach, beforeEach, describe, expect, it })
}
