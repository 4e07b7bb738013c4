/** A sentence of a prompt and its position. */
interface Sentence {
  readonly text: string
  readonly position: number
  readonly terms: readonly string[]
}

interface ExtractLimits {
  /** Maximum number of sentences. */
  readonly sentences: number
  /** Maximum number of characters. The first sentence may be longer. */
  readonly characters: number
}

/** Maximum length of a sentence. Longer ones are split. */
const MAX_SENTENCE_LENGTH = 500
/** Maximum number of sentences. Earlier ones are ignored. */
const MAX_SENTENCES = 100_000

/** Minimum score of a sentence, as a share of the best score. */
const MIN_SHARE = 0.35

/** Words that are ignored. */
const STOP_WORDS = new Set(
  (
    'a an and any are as at be been but by can could did do does for from had has have he her his how i if in is it its ' +
    'me my no not of on or our out please she should so some tell than that the their them then there these they this ' +
    'to us was we were what when where which who whom whose why will with would you your about'
  ).split(' '),
)

/**
 * Returns the sentences that match a question best, by BM25, in the order of the texts. Returns an empty list if no
 * sentence shares a word with the question.
 */
export function extractAnswer(texts: readonly string[], question: string, limits: ExtractLimits): readonly string[] {
  const asked = new Set(splitSentences(question))
  const sentences = readSentences(texts).filter(({ text }) => !asked.has(text))
  return best(sentences, new Set(termsOf(question)), limits, MIN_SHARE)
}

/** Returns the sentences that contain the most frequent words, in the order of the texts. */
export function extractSummary(texts: readonly string[], limits: ExtractLimits): readonly string[] {
  const sentences = readSentences(texts)
  const counts = new Map<string, number>()
  for (const term of sentences.flatMap((sentence) => sentence.terms)) counts.set(term, (counts.get(term) ?? 0) + 1)
  const frequent = [...counts].toSorted(([one, a], [other, b]) => b - a || (one < other ? -1 : 1)).slice(0, 12)
  return best(sentences, new Set(frequent.map(([term]) => term)), limits, 0)
}

/** Splits a text after `.`, `!` and `?` before white space, and at line ends. */
export function splitSentences(text: string): readonly string[] {
  return text
    .split(/(?<=[.!?。！？])\s+|\n+/u)
    .flatMap((sentence) => {
      const trimmed = sentence.trim()
      return trimmed.length <= MAX_SENTENCE_LENGTH ? trimmed : pieces(trimmed)
    })
    .filter((sentence) => sentence !== '')
}

function pieces(text: string): readonly string[] {
  const count = Math.ceil(text.length / MAX_SENTENCE_LENGTH)
  return Array.from({ length: count }, (_, at) => text.slice(at * MAX_SENTENCE_LENGTH, (at + 1) * MAX_SENTENCE_LENGTH))
}

function readSentences(texts: readonly string[]): readonly Sentence[] {
  const unique = new Set(texts.flatMap(splitSentences))
  return [...unique]
    .slice(-MAX_SENTENCES)
    .map((text, position) => ({ text, position, terms: termsOf(text) }))
    .filter((sentence) => sentence.terms.length > 0)
}

/** Returns the words in lower case without common English endings. Each Han character is a word. */
function termsOf(text: string): readonly string[] {
  const words = text.toLowerCase().match(/\p{Script=Han}|[\p{L}\p{N}]+/gu) ?? []
  return words.filter((word) => !STOP_WORDS.has(word)).map((word) => stem(word))
}

function stem(word: string): string {
  return word.length > 4 ? word.replace(/(?:ies|ing|ed|es|e|s|y)$/, '') : word
}

function best(
  sentences: readonly Sentence[],
  query: ReadonlySet<string>,
  limits: ExtractLimits,
  minShare: number,
): readonly string[] {
  const rank = ranker(sentences, query)
  const ranked = sentences
    .map((sentence) => ({ sentence, score: rank(sentence) }))
    .filter(({ score }) => score > 0)
    .toSorted((one, other) => other.score - one.score || one.sentence.position - other.sentence.position)
  const minScore = (ranked[0]?.score ?? 0) * minShare
  const chosen: Sentence[] = []
  let size = 0
  for (const { sentence, score } of ranked) {
    const fits = chosen.length === 0 || size + sentence.text.length < limits.characters
    if (chosen.length === limits.sentences || score < minScore || !fits) break
    chosen.push(sentence)
    size += sentence.text.length + 1
  }
  return chosen.toSorted((one, other) => one.position - other.position).map(({ text }) => text)
}

/** BM25 with k1 1.2 and b 0.75. */
function ranker(sentences: readonly Sentence[], query: ReadonlySet<string>): (sentence: Sentence) => number {
  const sentencesWith = new Map<string, number>()
  let length = 0
  for (const { terms } of sentences) {
    length += terms.length
    for (const term of new Set(terms)) if (query.has(term)) sentencesWith.set(term, (sentencesWith.get(term) ?? 0) + 1)
  }
  const average = length / Math.max(1, sentences.length)
  return ({ terms }) => {
    const counts = new Map<string, number>()
    for (const term of terms) if (query.has(term)) counts.set(term, (counts.get(term) ?? 0) + 1)
    const norm = 1.2 * (0.25 + (0.75 * terms.length) / average)
    return [...counts].reduce((score, [term, count]) => {
      const frequency = sentencesWith.get(term) ?? 0
      const rarity = Math.log(1 + (sentences.length - frequency + 0.5) / (frequency + 0.5))
      return score + (rarity * count * 2.2) / (count + norm)
    }, 0)
  }
}
