import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { AnswerStore } from '../../src/core/cache.ts'
import { testAnswerStore as declareTests } from '../../src/testing/cache-contracts.ts'

/** Declares the published tests with vitest. */
export function testAnswerStore(name: string, make: () => Promise<AnswerStore>): void {
  declareTests(name, make, { afterEach, beforeEach, describe, expect, it })
}
