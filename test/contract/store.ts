import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { testStore as declareTests, type MakeStore } from '../../src/testing/store-contract.ts'

export type { TestClock } from '../../src/testing/test-api.ts'

/** The published suite, run by vitest. */
export function testStore(name: string, make: MakeStore): void {
  declareTests(name, make, { afterEach, beforeEach, describe, expect, it })
}
