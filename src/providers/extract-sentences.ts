/** A sentence of a prompt and where it stood. */
interface Sentence {
  readonly text: string
  readonly position: number
  readonly terms: readonly string[]
}

export interface Extract {
  /** At most so many sentences. */
  readonly sentences: number
  /** At most so many characters, one sentence excepted. */
  readonly characters: number
}

/** Longer stretches without an end are cut, and more sentences than this are not looked at. */
const MAX_SENTENCE_LENGTH = 500
const MAX_SENTENCES = 100_000

/** Sentences that fit less than this share of the best one say nothing about the question. */
const MIN_SHARE = 0.35

/** The words of a question that say nothing. */
const EMPTY_WORDS = new Set(
  (
    'a an and any are as at be been but by can could did do does for from had has have he her his how i if in is it its ' +
    'me my no not of on or our out please she should so some tell than that the their them then there these they this ' +
    'to us was we were what when where which who whom whose why will with would you your about'
  ).split(' '),
)

/**
 * The sentences of the texts that fit a question best, in their order: BM25 over sentences. An empty list when none has
 * a word in common with it.
 */
export function extractAnswer(texts: readonly string[], question: string, most: Extract): readonly string[] {
  const asked = new Set(splitSentences(question))
  const sentences = readSentences(texts).filter(({ text }) => !asked.has(text))
  return best(sentences, new Set(termsOf(question)), most, MIN_SHARE)
}

/** The sentences that say most of what the texts are about, in their order. */
export function extractDigest(texts: readonly string[], most: Extract): readonly string[] {
  const sentences = readSentences(texts)
  const counts = new Map<string, number>()
  for (const term of sentences.flatMap((sentence) => sentence.terms)) counts.set(term, (counts.get(term) ?? 0) + 1)
  const frequent = [...counts].toSorted(([one, a], [other, b]) => b - a || (one < other ? -1 : 1)).slice(0, 12)
  return best(sentences, new Set(frequent.map(([term]) => term)), most, 0)
}

/** Sentences end with `.`, `!` or `?` before white space, and at line ends. */
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

/** Words in lower case without the commonest English endings; each Han character is a word. */
function termsOf(text: string): readonly string[] {
  const words = text.toLowerCase().match(/\p{Script=Han}|[\p{L}\p{N}]+/gu) ?? []
  return words.filter((word) => !EMPTY_WORDS.has(word)).map((word) => stem(word))
}

function stem(word: string): string {
  return word.length > 4 ? word.replace(/(?:ies|ing|ed|es|e|s|y)$/, '') : word
}

function best(
  sentences: readonly Sentence[],
  query: ReadonlySet<string>,
  most: Extract,
  leastShare: number,
): readonly string[] {
  const rank = ranker(sentences, query)
  const ranked = sentences
    .map((sentence) => ({ sentence, score: rank(sentence) }))
    .filter(({ score }) => score > 0)
    .toSorted((one, other) => other.score - one.score || one.sentence.position - other.sentence.position)
  const least = (ranked[0]?.score ?? 0) * leastShare
  const chosen: Sentence[] = []
  let size = 0
  for (const { sentence, score } of ranked) {
    const fits = chosen.length === 0 || size + sentence.text.length < most.characters
    if (chosen.length === most.sentences || score < least || !fits) break
    chosen.push(sentence)
    size += sentence.text.length + 1
  }
  return chosen.toSorted((one, other) => one.position - other.position).map(({ text }) => text)
}

/** BM25 with k1 1.2 and b 0.75. */
function ranker(sentences: readonly Sentence[], query: ReadonlySet<string>): (sentence: Sentence) => number {
  const holders = new Map<string, number>()
  let length = 0
  for (const { terms } of sentences) {
    length += terms.length
    for (const term of new Set(terms)) if (query.has(term)) holders.set(term, (holders.get(term) ?? 0) + 1)
  }
  const average = length / Math.max(1, sentences.length)
  return ({ terms }) => {
    const counts = new Map<string, number>()
    for (const term of terms) if (query.has(term)) counts.set(term, (counts.get(term) ?? 0) + 1)
    const norm = 1.2 * (0.25 + (0.75 * terms.length) / average)
    return [...counts].reduce((score, [term, count]) => {
      const held = holders.get(term) ?? 0
      const rarity = Math.log(1 + (sentences.length - held + 0.5) / (held + 0.5))
      return score + (rarity * count * 2.2) / (count + norm)
    }, 0)
  }
}
