import { lazy } from '../core/lazy.ts'
import type { Vocabulary } from '../core/model.ts'
import type { Tokenizer } from '../core/ports.ts'
import { estimateTokens } from './estimate.ts'
import type { ExactCount } from './exact.ts'

/**
 * The default tokenizer. The exact counter, and the ranks of a vocabulary (1 to 2 MB), are loaded at the first count that
 * needs them.
 */
export function createTokenizer(): Tokenizer {
  const counters = { o200k: lazy(() => counterOf('o200k')), cl100k: lazy(() => counterOf('cl100k')) }
  return {
    estimate: estimateTokens,
    count: async (text, signal, vocabulary = 'o200k') => {
      const count = await counters[vocabulary]()
      return count(text, signal)
    },
  }
}

async function counterOf(vocabulary: Vocabulary): Promise<ExactCount> {
  const { createExactCount } = await import('./exact.ts')
  return createExactCount(vocabulary)
}
