import { describe, expect, it } from 'vitest'
import type { Embedder } from '../../src/core/cache.ts'
import { testEmbedder as declareTests } from '../../src/testing/cache-contracts.ts'

/** Declares the published tests with vitest. */
export function testEmbedder(name: string, make: () => Embedder): void {
  declareTests(name, make, { describe, expect, it })
}
