import type { Tokenizer } from '../core/ports.ts'
import { estimateTokens } from './estimate.ts'
import { createExactCount } from './exact.ts'

/** The default tokenizer. The ranks of a vocabulary (1 to 2 MB) are loaded at its first exact count. */
export function createTokenizer(): Tokenizer {
  const counts = { o200k: createExactCount('o200k'), cl100k: createExactCount('cl100k') }
  return {
    estimate: estimateTokens,
    count: (text, signal, vocabulary = 'o200k') => counts[vocabulary](text, signal),
  }
}
