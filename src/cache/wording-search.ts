import type { CandidateSearch } from './candidate-search.ts'
import { canonicalize } from './canonical.ts'
import { createWordingIndex, wordingBytes } from './wording-index.ts'

/** Subtracted from the similarity for each typo. */
const TYPO_COST = 0.01

/**
 * Finds candidates by their words, for the offline embedder. No vector is computed: texts with the same canonical words
 * have the similarity 1 under this embedder, and words with a typo count as corrected.
 */
export function createWordingSearch(): CandidateSearch {
  const index = createWordingIndex()
  return {
    bytesOf: wordingBytes,
    find: (lookup, limit) => {
      const { scope, text } = lookup.key
      if (!index.has(scope)) return []
      const form = (lookup.form ??= canonicalize(text))
      return index.find(scope, form, limit).map(({ wording, typos }) => ({
        id: wording.id,
        form: canonicalize,
        similarity: () => 1 - TYPO_COST * typos,
      }))
    },
    add: ({ key, form }) => index.add({ ...key, ...(form !== undefined && { form }) }),
    remove: (scope, id) => index.remove(scope, id),
    clear: () => index.clear(),
  }
}
