import type { Tokenizer } from '../core/ports.ts'
import { estimateTokens } from './estimate.ts'
import { createExactCount } from './exact.ts'

/** The default tokenizer: o200k. The ranks (2.3 MB) are loaded at the first exact count. */
export function createTokenizer(): Tokenizer {
  return { estimate: estimateTokens, count: createExactCount() }
}
