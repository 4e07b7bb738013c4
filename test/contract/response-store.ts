import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { ResponseStore } from '../../src/core/cache.ts'
import { testResponseStore as declareTests } from '../../src/testing/cache-contracts.ts'

/** Declares the published tests with vitest. */
export function testResponseStore(name: string, make: () => Promise<ResponseStore>): void {
  declareTests(name, make, { afterEach, beforeEach, describe, expect, it })
}
