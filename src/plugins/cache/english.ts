import { isPlainWord, toWordTokens, type Token } from './tokenize.ts'

/** Words that identify a text as English. */
const ENGLISH_MARKERS: ReadonlySet<string> = words(
  `what how the are does who why which where when should you my explain would could with this these those that write tell
  please give show there their they your its been have from has it's what's whats who's how's where's don't doesn't didn't
  need suggest know think said because using steps every people isn't aren't can't i'm i've i'd did and about between she cannot`,
)

/** Weaker than `ENGLISH_MARKERS`: two of these words identify a text without `FOREIGN_HINTS` as English. */
const ENGLISH_HINTS: ReadonlySet<string> = words('is it to or be at not of by as on for in with if that you')

/** Words of languages that share words with English: Dutch `of` means or, Norwegian `for at` means so that. */
const FOREIGN_HINTS: ReadonlySet<string> = words(
  `de het een van voor niet ik je mijn zijn wie wat waar hoe welke heeft dat
  jeg og det som ikke til på att och är er en et av med fra hva hvem hvor hvorfor
  der das und nicht ein eine ist hat wer wann ich sie mit auf zu von den dem
  le la les des du une est et que qui quoi quand tu il elle nous vous dans sur avec pas ne
  por una es un di che não os uma`,
)

export const NEGATIONS: ReadonlySet<string> = words(
  `not no never none nobody nothing neither nor nowhere without hardly barely rarely seldom cannot n't
  nicht kein keine keinen keiner keinem nie niemals ohne pas jamais sans aucun aucune nunca jamás sin ningún ninguna
  mai senza nessun nessuna niet geen nooit zonder não nem sem inte ikke ei nie bez не нет без никогда`,
)

export const QUESTION_WORDS: ReadonlySet<string> = words('what who whom whose when where why how which')

/** Endings of contractions, their expansions, and the stems that they follow. */
const CONTRACTION_ENDINGS: readonly (readonly [string, string, string])[] = [
  ["n't", 'not', 'is are was were do does did has have had could would should must need might'],
  ['nt', 'not', 'is are was were do does did has have had could would should must'],
  ["'re", 'are', 'you we they who what where how'],
  ["'ve", 'have', 'i you we they who could would should might must'],
  ["'ll", 'will', 'i you he she it we they that there this what who'],
  ["'s", 'is', 'what who where when why how that there here it he she'],
  ['s', 'is', 'what where how who that there'],
  ['ve', 'have', 'you they'],
  ['ll', 'will', 'you they'],
]

const CONTRACTIONS: ReadonlyMap<string, readonly string[]> = new Map([
  ...CONTRACTION_ENDINGS.flatMap(([ending, word, stems]) =>
    stems.split(' ').map((stem): [string, readonly string[]] => [stem + ending, [stem, word]]),
  ),
  ...[
    ["can't", 'can not'],
    ['cannot', 'can not'],
    ["won't", 'will not'],
    ['gimme', 'give me'],
    ['lemme', 'let me'],
    ["shan't", 'shall not'],
    ["i'm", 'i am'],
    ['im', 'i am'],
    ['ive', 'i have'],
    ['youre', 'you are'],
    ['theyre', 'they are'],
    ["let's", 'let us'],
    ["y'all", 'you all'],
  ].map(([short = '', long = '']): [string, readonly string[]] => [short, long.split(' ')]),
])

/** Words before which `'d` means would. Before other words, it can mean had. */
const AFTER_WOULD: ReadonlySet<string> = words('like love prefer rather appreciate')

/** Short forms of one word. British and American spellings stay apart: the Labor Party is not the Labour Party. */
const SHORT_FORMS: ReadonlyMap<string, string> = pairs(
  'cuz because|coz because|pls please|plz please|thx thanks|gonna going-to|wanna want-to',
)

function normalizeWord(word: string): readonly string[] | undefined {
  return SHORT_FORMS.get(word)?.split('-')
}

function pairs(list: string): ReadonlyMap<string, string> {
  return new Map(list.split(/\|\s*/).map((pair) => pair.split(' ') as [string, string]))
}

export function words(list: string): ReadonlySet<string> {
  return new Set(list.split(/\s+/))
}

/** Excludes texts with other letters than those of English, and with longer words. */
export function isEnglish(tokens: readonly Token[]): boolean {
  const keys = new Set<string>()
  for (const token of tokens) {
    if (token.kind === 'word' && !isEnglishWord(token.key)) return false
    keys.add(token.key)
  }
  let [marks, hints, foreignHints] = [0, 0, 0]
  for (const key of keys) {
    if (ENGLISH_MARKERS.has(key) || ENGLISH_CONTRACTION.test(key)) marks += 1
    if (ENGLISH_HINTS.has(key)) hints += 1
    if (FOREIGN_HINTS.has(key)) foreignHints += 1
  }
  const hasArticle = keys.has('is') && (keys.has('a') || keys.has('an'))
  const mayBeEnglish = marks > 0 || (hints >= 2 && foreignHints === 0) || hasArticle
  return mayBeEnglish && 2 * marks + hints >= 2 * foreignHints
}

const ENGLISH_CONTRACTION = /(?:n't|[eiouy]'(?:re|ve|ll|m)|^(?:why|when)'s)$/
const ENGLISH_WORD = /^[a-z]+(?:'[a-z]+)*$/

/** Patterns of courtesies need time in proportion to the square of the length of a word. */
const MAX_WORD_LENGTH = 45

function isEnglishWord(word: string): boolean {
  return word.length <= MAX_WORD_LENGTH && ENGLISH_WORD.test(word)
}

/** @param mayQuote True if a contraction may be quoted and is therefore significant. */
export function rewriteWords(tokens: readonly Token[], mayQuote: boolean): readonly Token[] {
  const rewritten: Token[] = []
  for (const [index, token] of tokens.entries()) {
    const expanded = token.kind === 'word' && !mayQuote ? expand(token, tokens, index) : undefined
    for (const word of expanded ?? [token]) {
      const plain = isPlainWord(word) ? normalizeWord(word.key) : undefined
      if (plain === undefined) rewritten.push(word)
      else rewritten.push(...toWordTokens(word, plain))
    }
  }
  return rewritten
}

const PRONOUN_D = /^(i|you|he|she|we|they)'d$/
const DETERMINERS = words('a an the my your his her its our their this that of')
const MODALS_BEFORE_U = words('can could would will do did are')

/** After these words, a contraction is the subject: `how do I use cannot`. */
const BEFORE_SUBJECTS = words('use uses using used between with of like')

function expand(token: Token, tokens: readonly Token[], index: number): readonly Token[] | undefined {
  const [before = '', next = ''] = [tokens[index - 1]?.key, tokens[index + 1]?.key]
  if (BEFORE_SUBJECTS.has(before)) return undefined
  if (token.key === 'u') return MODALS_BEFORE_U.has(before) && next !== '' ? toWordTokens(token, ['you']) : undefined
  const expanded = CONTRACTIONS.get(token.key)
  if (expanded !== undefined) {
    // Without an apostrophe, it may be a noun: `his wont`. Before a participle, `'s` may mean has.
    if (!token.key.includes("'") && DETERMINERS.has(before)) return undefined
    if (expanded[1] === 'is' && tokens.slice(index + 1, index + 4).some(mayBeParticiple)) return undefined
    return toWordTokens(token, expanded)
  }
  const pronoun = token.key.endsWith("'d") ? PRONOUN_D.exec(token.key)?.[1] : undefined
  if (pronoun === undefined || !AFTER_WOULD.has(next)) return undefined
  return toWordTokens(token, [pronoun, 'would'])
}

const PARTICIPLES = words(
  `been seen got had gone come become done made said lost found left sent spent built bought brought thought caught taught felt
  kept slept met read led held told sold stood understood won run begun sung drunk put cut set let hit hurt cost shut paid
  laid heard meant dealt dreamt learnt burnt just already ever never`,
)

const NO_PARTICIPLES = words(
  'between even often when then open seven children women garden kitchen chicken hundred need speed',
)

function mayBeParticiple({ key }: Token): boolean {
  if (NO_PARTICIPLES.has(key)) return false
  return PARTICIPLES.has(key) || (key.length >= 4 && /(?:ed|(?<!e)en|wn)$/.test(key))
}
