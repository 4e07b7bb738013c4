import { createPause, type Pause } from '../../core/async.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'

/** Shared by all requests. Tests pass their own. */
export const sharedPause: Pause = createPause(yieldToEventLoop)

interface Sentence {
  readonly text: string
  readonly position: number
  readonly terms: readonly string[]
}

interface SelectionLimits {
  readonly maxSentences: number
  readonly maxChars: number
  readonly minShare: number
}

/** Maximum number of characters between two pauses. */
export const SLICE_LENGTH = 32_768
const MAX_SENTENCE_LENGTH = 500
/** Of more different sentences, the last are read: at least half of this number. */
const MAX_READ_SENTENCES = 100_000
/** Of more different terms, the first are counted. */
const MAX_COUNTED_TERMS = 50_000
const SUMMARY_TERMS = 12
/** More sentences are not sorted at once. A response of the maximum length has fewer. */
const MAX_CANDIDATES = 4096

const STOP_WORDS = new Set(
  (
    'a an and any are as at be been but by can could did do does for from had has have he her his how i if in is it its ' +
    'me my no not of on or our out please she should so some tell than that the their them then there these they this ' +
    'to us was we were what when where which who whom whose why will with would you your about'
  ).split(' '),
)

export async function extractResponse(
  texts: readonly string[],
  question: string,
  maxChars: number,
  pause: Pause,
): Promise<readonly string[]> {
  const questionSentences = new Set(splitSentences(question))
  const sentences = await readSentences(texts, pause, (text) => !questionSentences.has(text))
  return selectBest(sentences, new Set(termsOf(question)), { maxSentences: 5, maxChars, minShare: 0.35 }, pause)
}

export async function extractSummary(text: string, maxChars: number, pause: Pause): Promise<readonly string[]> {
  const sentences = await readSentences([text], pause)
  const terms = await frequentTerms(sentences, pause)
  return selectBest(sentences, terms, { maxSentences: Infinity, maxChars, minShare: 0 }, pause)
}

async function frequentTerms(sentences: readonly Sentence[], pause: Pause): Promise<ReadonlySet<string>> {
  const counts = new Map<string, number>()
  for (const { terms } of sentences) {
    for (const term of terms) {
      const count = counts.get(term)
      if (count !== undefined || counts.size < MAX_COUNTED_TERMS) counts.set(term, (count ?? 0) + 1)
    }
    await pause()
  }
  const frequent = [...counts]
    .toSorted(([termA, countA], [termB, countB]) => countB - countA || (termA < termB ? -1 : 1))
    .slice(0, SUMMARY_TERMS)
  return new Set(frequent.map(([term]) => term))
}

/** Calls `visit` with each sentence of a text, in slices that end after a sentence if possible. */
export async function forEachSentence(text: string, visit: (sentence: string) => void, pause: Pause): Promise<void> {
  for (let start = 0; start < text.length;) {
    const end = endOfSlice(text, start)
    for (const sentence of splitSentences(text.slice(start, end))) visit(sentence)
    start = end
    await pause()
  }
}

function endOfSlice(text: string, start: number): number {
  const limit = start + SLICE_LENGTH
  if (limit >= text.length) return text.length
  for (let end = limit; end > start; end--) {
    const last = text[end - 1] ?? ''
    if (last === '\n' || (last === ' ' && /[.!?。！？]/.test(text[end - 2] ?? ''))) return end
  }
  return limit
}

function splitSentences(text: string): readonly string[] {
  const sentences = text.split(/(?<=[.!?。！？])\s+|\n+/u)
  return sentences.flatMap((sentence) => sentence.trim().match(SENTENCE_PIECES) ?? [])
}

const SENTENCE_PIECES = new RegExp(`[^]{1,${MAX_SENTENCE_LENGTH}}`, 'g')

async function readSentences(
  texts: readonly string[],
  pause: Pause,
  accepts: (text: string) => boolean = () => true,
): Promise<readonly Sentence[]> {
  const recent = new RecentTexts()
  for (const text of texts) await forEachSentence(text, (sentence) => recent.add(sentence), pause)
  const sentences: Sentence[] = []
  let position = 0
  for (const text of recent.values()) {
    const sentence = { text, position: position++, terms: accepts(text) ? termsOf(text) : [] }
    if (sentence.terms.length > 0) sentences.push(sentence)
    await pause()
  }
  return sentences
}

/** Two sets, because deleting the oldest element of a large set is slow. */
class RecentTexts {
  #older = new Set<string>()
  #newer = new Set<string>()

  add(text: string): void {
    if (this.#older.has(text)) return
    this.#newer.add(text)
    if (this.#newer.size < MAX_READ_SENTENCES / 2) return
    this.#older = this.#newer
    this.#newer = new Set()
  }

  *values(): Generator<string, void, undefined> {
    yield* this.#older
    yield* this.#newer
  }
}

function termsOf(text: string): readonly string[] {
  const words = text.toLowerCase().match(/\p{Script=Han}|[\p{L}\p{N}]+/gu) ?? []
  const contentWords = words.filter((word) => !STOP_WORDS.has(word))
  return contentWords.map((word) => (word.length > 4 ? word.replace(/(?:ies|ing|ed|es|e|s|y)$/, '') : word))
}

interface Candidate {
  readonly sentence: Sentence
  readonly score: number
}

async function selectBest(
  sentences: readonly Sentence[],
  query: ReadonlySet<string>,
  { maxSentences, maxChars, minShare }: SelectionLimits,
  pause: Pause,
): Promise<readonly string[]> {
  const ranked = await rank(sentences, await createScorer(sentences, query, pause), pause)
  const minScore = (ranked[0]?.score ?? 0) * minShare
  const selected: Sentence[] = []
  let size = 0
  for (const { sentence, score } of ranked) {
    const fits = selected.length === 0 || size + sentence.text.length < maxChars
    if (selected.length === maxSentences || score < minScore || !fits) break
    selected.push(sentence)
    size += sentence.text.length + 1
  }
  return selected.toSorted((a, b) => a.position - b.position).map(({ text }) => text)
}

async function rank(
  sentences: readonly Sentence[],
  scoreOf: (sentence: Sentence) => number,
  pause: Pause,
): Promise<readonly Candidate[]> {
  let ranked: Candidate[] = []
  const sort = (): void => {
    ranked.sort((a, b) => b.score - a.score || a.sentence.position - b.sentence.position)
    ranked = ranked.slice(0, MAX_CANDIDATES)
  }
  for (const sentence of sentences) {
    const score = scoreOf(sentence)
    if (score > 0) ranked.push({ sentence, score })
    if (ranked.length === 2 * MAX_CANDIDATES) sort()
    await pause()
  }
  sort()
  return ranked
}

/** BM25 with k1 = 1.2 and b = 0.75. */
async function createScorer(
  sentences: readonly Sentence[],
  query: ReadonlySet<string>,
  pause: Pause,
): Promise<(sentence: Sentence) => number> {
  const sentenceCounts = new Map<string, number>()
  let termCount = 0
  for (const { terms } of sentences) {
    termCount += terms.length
    for (const term of new Set(terms))
      if (query.has(term)) sentenceCounts.set(term, (sentenceCounts.get(term) ?? 0) + 1)
    await pause()
  }
  const averageLength = termCount / Math.max(1, sentences.length)
  return ({ terms }) => {
    const counts = new Map<string, number>()
    for (const term of terms) if (query.has(term)) counts.set(term, (counts.get(term) ?? 0) + 1)
    const norm = 1.2 * (0.25 + (0.75 * terms.length) / averageLength)
    return [...counts].reduce((score, [term, count]) => {
      const sentenceCount = sentenceCounts.get(term) ?? 0
      const idf = Math.log(1 + (sentences.length - sentenceCount + 0.5) / (sentenceCount + 0.5))
      return score + (idf * count * 2.2) / (count + norm)
    }, 0)
  }
}
