import type { Pause } from '../core/async.ts'
import { countTerms, corpusOf, rarityAmong, type Corpus, type TermCounts } from './keywords.ts'
import { termsOf } from './terms.ts'

/** Numbers, dates, versions, paths, identifiers and names, which a summary must keep. */
const FACT = /\d[\d.,:%/-]*|[\p{L}\d]+(?:[._/-][\p{L}\d]+)+|\p{Ll}+\p{Lu}[\p{L}\d]*|(?<=[\p{Ll},;:] )\p{Lu}\p{L}{2,}/gu
/** Requirements, decisions and open points. */
const WEIGHTY =
  /\b(?:decid|agree|chose|must|should|need|want|prefer|always|never|because|instead|error|fail|fix|todo|deadline|remember)/i
const FIRST_PERSON = /\b(?:i|i'm|i've|my|we|our)\b/i
const MIN_LENGTH = 16
/** UTF-16 units between two pauses. */
const SLICE = 16_384
const MAX_LENGTH = 500
const LENGTH_POWER = 0.7
const MIN_TOKENS = 12

/**
 * Returns the sentences of a text with the most facts, unchanged and in order. A summary without a model cannot invent
 * facts or follow injected instructions.
 */
export async function summarizeByExtract(
  text: string,
  maxTokens: number,
  { estimate, pause }: { readonly estimate: (text: string) => number; readonly pause: Pause },
): Promise<string> {
  const sentences = await sentencesOf(text, pause)
  const counts: TermCounts[] = []
  const sizes: number[] = []
  for (const sentence of sentences) {
    counts.push(countTerms(termsOf(sentence)))
    sizes.push(estimate(sentence) + 1)
    const due = pause()
    if (due !== undefined) await due
  }
  const corpus = await corpusOf(counts, pause)
  const worth: number[] = []
  for (const [at, sentence] of sentences.entries()) {
    worth.push(factsIn(sentence, counts[at], corpus) / Math.max(MIN_TOKENS, sizes[at] ?? 0) ** LENGTH_POWER)
    const due = pause()
    if (due !== undefined) await due
  }
  const order = [...sentences.keys()].sort((a, b) => (worth[b] ?? 0) - (worth[a] ?? 0) || a - b)
  const kept = new Set<number>()
  let left = maxTokens
  for (const at of order) {
    if ((sizes[at] ?? 0) > left) continue
    kept.add(at)
    left -= sizes[at] ?? 0
  }
  return sentences.filter((_, at) => kept.has(at)).join('\n')
}

/** Scores a sentence by its numbers, names, rare words, requirements and decisions. */
function factsIn(sentence: string, counts: TermCounts | undefined, { texts, spread }: Corpus): number {
  const facts = sentence.match(FACT)?.length ?? 0
  const said = (FIRST_PERSON.test(sentence) ? 1 : 0) + (WEIGHTY.test(sentence) ? 1 : 0)
  let rare = 0
  for (const term of counts?.terms ?? []) rare += Math.min(3, rarityAmong(texts.length, spread.get(term) ?? 0)) / 10
  return facts + rare + said
}

/** Returns the distinct sentences in order. */
async function sentencesOf(text: string, pause: Pause): Promise<readonly string[]> {
  const sentences = new Set<string>()
  for (let at = 0; at < text.length;) {
    const end = endOfSlice(text, at)
    for (const piece of text.slice(at, end).split(/(?<=[.!?。！？])\s+|\n+/u)) {
      const sentence = piece.trim()
      if (sentence.length >= MIN_LENGTH && sentence.length <= MAX_LENGTH) sentences.add(sentence)
    }
    at = end
    await pause()
  }
  return [...sentences]
}

/** Returns the end of the line or sentence after about one slice, so that no usable sentence is cut. */
function endOfSlice(text: string, start: number): number {
  const border = /[.!?。！？]\s|\n/gu
  border.lastIndex = start + SLICE
  return border.test(text) ? border.lastIndex : text.length
}
