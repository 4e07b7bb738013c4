import type { CandidateSearch, Lookup } from './candidate-search.ts'
import { canonicalize, meaningOf, type Canonical } from './canonical.ts'
import { embedForm } from './hashing-embedder.ts'
import { cosine } from './partition.ts'
import { createWordingIndex, wordingBytes, type Wording } from './wording-index.ts'

/**
 * Finds candidates by their words, for the offline embedder. Vectors are computed only for a candidate with typos that
 * the guard accepted: this embedder gives the similarity 1 to texts with the same canonical words.
 */
export function createWordingSearch(): CandidateSearch {
  const index = createWordingIndex()
  return {
    bytesOf: wordingBytes,
    find: (lookup, limit) => {
      const { scope, text } = lookup.key
      if (!index.has(scope)) return []
      const form = (lookup.form ??= canonicalize(text))
      return index.find(scope, form, limit).map((wording) => ({
        id: wording.id,
        form: () => wording.form,
        similarity: () => similarityOf(lookup, form, wording),
      }))
    },
    add: ({ key, form }) => index.add({ ...key, ...(form !== undefined && { form }) }),
    remove: (scope, id) => index.remove(scope, id),
    clear: () => index.clear(),
  }
}

function similarityOf(lookup: Lookup, form: Canonical, wording: Wording): number {
  if (meaningOf(form) === meaningOf(wording.form)) return 1
  const vector = (lookup.vector ??= embedForm(form))
  return cosine(vector, embedForm(wording.form))
}
