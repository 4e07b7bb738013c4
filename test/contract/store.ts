import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { testStore as declareTests } from '../../src/testing/store-contract.ts'
import type { MakeStore } from '../../src/testing/store-suite.ts'

export type { TestClock } from '../../src/testing/store-suite.ts'

/** Declares the published tests with vitest. */
export function testStore(name: string, make: MakeStore): void {
  declareTests(name, make, { afterEach, beforeEach, describe, expect, it })
}
