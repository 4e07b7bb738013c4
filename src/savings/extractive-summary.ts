import { countTerms, corpusOf, rarityAmong } from './keywords.ts'
import { termsOf } from './terms.ts'

/** Numbers, dates, versions, paths, identifiers and names: what a summary must not lose. */
const FACT = /\d[\d.,:%/-]*|[\p{L}\d]+(?:[._/-][\p{L}\d]+)+|\p{Ll}+\p{Lu}[\p{L}\d]*|(?<=[\p{Ll},;:] )\p{Lu}\p{L}{2,}/gu
/** Wishes, decisions and open ends. */
const WEIGHTY =
  /\b(?:decid|agree|chose|must|should|need|want|prefer|always|never|because|instead|error|fail|fix|todo|deadline|remember)/i
const FIRST_PERSON = /\b(?:i|i'm|i've|my|we|our)\b/i
const SHORTEST = 16
const LONGEST = 500
const LENGTH_POWER = 0.7
const SMALLEST_LENGTH = 12

/**
 * The sentences of a text that hold most facts, in their order, word for word: a summary without a model, which can
 * neither invent nor obey anything.
 */
export function summariseByExtract(text: string, maxTokens: number, estimate: (text: string) => number): string {
  const sentences = [...new Set(sentencesOf(text))]
  const counts = sentences.map((sentence) => countTerms(termsOf(sentence)))
  const { spread } = corpusOf(counts)
  const sizes = sentences.map((sentence) => estimate(sentence) + 1)
  const worth = sentences.map((sentence, at) => {
    const facts = sentence.match(FACT)?.length ?? 0
    let rare = 0
    for (const term of counts[at]?.terms ?? [])
      rare += Math.min(3, rarityAmong(sentences.length, spread.get(term) ?? 0)) / 10
    const said = (FIRST_PERSON.test(sentence) ? 1 : 0) + (WEIGHTY.test(sentence) ? 1 : 0)
    return (facts + rare + said) / Math.max(SMALLEST_LENGTH, sizes[at] ?? 0) ** LENGTH_POWER
  })
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

function sentencesOf(text: string): string[] {
  return text
    .split(/(?<=[.!?。！？])\s+|\n+/u)
    .map((sentence) => sentence.trim())
    .filter((sentence) => sentence.length >= SHORTEST && sentence.length <= LONGEST)
}
