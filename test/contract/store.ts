import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { testStore as declareTests } from '../../src/testing/store-contract.ts'
import type { MakeStore } from '../../src/testing/test-api.ts'

export type { TestClock } from '../../src/testing/test-api.ts'

/** Declares the published tests with vitest. */
export function testStore(name: string, make: MakeStore): void {
  declareTests(name, make, { afterEach, beforeEach, describe, expect, it })
}
