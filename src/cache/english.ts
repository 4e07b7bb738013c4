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

/** After these words, `a` is an article, not a letter (vitamin A) or a foreign word. */
export const BEFORE_ARTICLE: ReadonlySet<string> = words(
  `is are was were be been being am do does did has have had can could will would shall should may might must
  of in on at to for from by with without about into onto over under between through during before after since until
  against among within across behind as than like and or but if when while because that which what who how where why
  not only also give show write make build create get use using become becoming tell explain describe list find need
  want buy open read see this that it there he she they you i we`,
)

/** Words before which an article is significant: a few is not few, the most is not most. */
export const AFTER_SIGNIFICANT_ARTICLE: ReadonlySet<string> = words(
  `few little lot bit number couple great good most least more less best worst first last second third one other others
  same only half who whole all while front charge possession control care view sight case time question`,
)

/** Words that make the order of a pair significant: a cross between a horse and a donkey. */
export const ORDER_MATTERS: ReadonlySet<string> = words(
  `between from ratio order first then before after versus vs cross into to respectively if than over divided minus of
  per both either former latter and or`,
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
    ['cant', 'can not'],
    ['cannot', 'can not'],
    ["won't", 'will not'],
    ['wont', 'will not'],
    ['gimme', 'give me'],
    ['lemme', 'let me'],
    ["shan't", 'shall not'],
    ["ain't", 'is not'],
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

/** British and American spellings. */
const SPELLINGS: readonly (readonly [RegExp, string])[] = [
  [/^(\w{4,})is(e|es|ed|ing|ation|ations|er|ers)$/, '$1iz$2'],
  [/^(anal|paral|catal)ys(e|es|ed|ing)$/, '$1yz$2'],
  [/^(col|fav|hon|lab|flav|behavi|neighb|hum|rum|harb|vap|arm|endeav|tum|savi|od|vig)our/, '$1or'],
  [/^(cent|theat|fib|lit|met|calib|kilomet|centimet|millimet|millilit)re(s?)$/, '$1er$2'],
  [/^(catalog|dialog|analog)ue(s?)$/, '$1$2'],
  [/^(trave|cance|mode|labe|signa|leve|fue|jewe|counse)ll(ed|ing|er|ers)$/, '$1l$2'],
]

/** Replaced in any position, unlike `VERB_SYNONYMS`. Must not contain numbers, negations or comparisons. */
const SYNONYMS: ReadonlyMap<string, string> = pairs(
  `okay ok|alright ok|television tv|telephone phone|kids children|kid child|mum mom|automobile car|
  automobiles cars|grey gray|programme program|programmes programs|defence defense|offence offense|licence license|
  aluminium aluminum|tyre tire|tyres tires|jewellery jewelry|maths math|mathematics math|learnt learned|spelt spelled|
  burnt burned|whilst while|amongst among|towards toward|advert ad|adverts ads|advertisement ad|advertisements ads|
  info information|enormous huge|frequently often|gonna going-to|wanna want-to|u you|ur your|pls please|plz please|
  thx thanks|btw by-the-way|sofa couch|autumn fall|photograph photo|photographs photos|refrigerator fridge|
  refrigerators fridges|aeroplane airplane|aeroplanes airplanes|perhaps maybe|rapidly quickly|cuz because|coz because|
  thru through|ppl people|approx approximately|veggies vegetables|pyjamas pajamas|moustache mustache|cosy cozy|
  judgement judgment|ageing aging|sceptical skeptical|manoeuvre maneuver|artefact artifact|artefacts artifacts|
  doughnut donut|doughnuts donuts|yoghurt yogurt|enrol enroll|fulfil fulfill|skilful skillful|instalment installment|
  instalments installments|anaemia anemia|oestrogen estrogen|foetus fetus|diarrhoea diarrhea|paediatric pediatric|
  mould mold|plough plow|practise practice`,
)

/** Synonymous verbs. Replaced only after a word in `BEFORE_VERB`, because a purchase order is not a buy order. */
const VERB_SYNONYMS: ReadonlyMap<string, string> = pairs(
  `purchase buy|begin start|repair fix|assist help|utilize use|select choose|obtain get|require need|shut close|
  attempt try|demonstrate show|construct build`,
)

const BEFORE_VERB: ReadonlySet<string> = words(
  'to i you we they who can could should would will must may might do does did not please',
)

/** Matches all words that SPELLINGS may change, so that most words need only one test. */
const RESPELLABLE = /[iy]s(?:e|es|ed|ing|ation|ations|er|ers)$|our|res?$|ogues?$|ll(?:ed|ing|er|ers)$/

function normalizeWord(word: string, previousWord: string): readonly string[] | undefined {
  const row = RESPELLABLE.test(word) ? SPELLINGS.find(([pattern]) => pattern.test(word)) : undefined
  const spelled = row === undefined ? word : word.replace(row[0], row[1])
  const verb = BEFORE_VERB.has(previousWord) ? VERB_SYNONYMS.get(spelled) : undefined
  const plain = verb ?? SYNONYMS.get(spelled) ?? spelled
  return plain === word ? undefined : plain.split('-')
}

/** Small numbers, except `one`, which is also a pronoun. */
const NUMBER_WORDS: ReadonlyMap<string, string> = pairs(
  `two 2|three 3|four 4|five 5|six 6|seven 7|eight 8|nine 9|ten 10|eleven 11|twelve 12|thirteen 13|fourteen 14|fifteen 15|
  sixteen 16|seventeen 17|eighteen 18|nineteen 19`,
)

/** Nouns that, after a number, specify the size of an answer: `in three sentences` does not ask about sentences. */
const SIZE_UNITS: ReadonlySet<string> = words('sentence sentences characters letters syllables')

/** Words that mark a text about spelling or wording, in which every letter is significant. */
const ABOUT_LETTERS: ReadonlySet<string> = words(
  `spell spelled spelt spelling spells misspelled misspelling typo typos proofread grammar grammatical grammatically
  correct corrected correctly correction letter letters anagram pronounce pronounced pronunciation rhyme rhymes rhyming
  syllable syllables vowel vowels consonant consonants character characters capitalize capitalized capitalise uppercase
  lowercase capital-letters translate translated translation translating sentence sentences paraphrase rephrase reword
  rewrite edit verbatim punctuation apostrophe contraction contractions literally transcribe alphabet alphabetically`,
)

/** In a text about words, synonyms are significant. */
const ABOUT_WORDS: ReadonlySet<string> = words(
  `word words synonym synonyms antonym antonyms define definition mean means meaning difference differences differ
  distinction vs versus compare compared comparison between keyword keywords command statement term terms say said called
  british american dialect slang etymology language`,
)

const BEFORE_WORD: ReadonlySet<string> = words('a real valid actual proper english')

/** Words that have a different meaning when capitalized. */
export const CASE_SENSITIVE_WORDS: ReadonlySet<string> = words(
  `us it who aids am pm or in polish turkey china nice reading bath march may august will mark bill grant jack rose dawn
  hope faith grace apple amazon shell target gap oracle windows word excel access teams swift go rust ruby cat pin ram
  job mercury mars lima chile chad jordan georgia java mobile orange guinea cork split nancy cologne jersey panama bermuda
  mass lent catholic republican democrat liberal pat art gene ray penny iris violet olive pearl robin carol cliff dean earl
  duke miles rich rod skip wade ward frank chase sue drew chrome edge safari opera slack zoom signal discord notion canvas
  square block stripe meta dart crystal elixir flask spring express react angular puppet chef salt vault spark hive pig
  storm beam lambda cocoa shell snowflake jaguar mustang puma beetle sie ihr ihre ihrem ihren ihrer ihres ihnen`,
)

function pairs(list: string): ReadonlyMap<string, string> {
  return new Map(list.split(/\|\s*/).map((pair) => pair.split(' ') as [string, string]))
}

export function words(list: string): ReadonlySet<string> {
  return new Set(list.split(/\s+/))
}

interface Traits {
  readonly isEnglish: boolean
  readonly isAboutLetters: boolean
  readonly isAboutWords: boolean
}

export function traitsOf(tokens: readonly Token[]): Traits {
  const keys = new Set<string>()
  tokens.forEach((token, index) => {
    if (!SIZE_UNITS.has(token.key) || !isNumber(tokens[index - 1])) keys.add(token.key)
  })
  let [marks, hints, foreignHints, isAboutLetters, isAboutWords] = [0, 0, 0, false, false]
  for (const key of keys) {
    if (ENGLISH_MARKERS.has(key)) marks += 1
    if (ENGLISH_HINTS.has(key)) hints += 1
    if (FOREIGN_HINTS.has(key)) foreignHints += 1
    isAboutLetters ||= ABOUT_LETTERS.has(key)
    isAboutWords ||= ABOUT_WORDS.has(key)
  }
  isAboutLetters ||= tokens.some((token, index) => asksForWord(tokens[index - 1], token, tokens[index + 1]))
  const hasArticle = keys.has('is') && (keys.has('a') || keys.has('an'))
  const mayBeEnglish = marks > 0 || (hints >= 2 && foreignHints === 0) || hasArticle
  return { isEnglish: mayBeEnglish && 2 * marks + hints >= 2 * foreignHints, isAboutLetters, isAboutWords }
}

/** In "Is recieve a word?", a typo is the subject. */
function asksForWord(before: Token | undefined, { key }: Token, after: Token | undefined): boolean {
  return key === 'word' && BEFORE_WORD.has(before?.key ?? '') && (after?.kind !== 'word' || after.key === 'in')
}

function isNumber(token: Token | undefined): boolean {
  return token?.kind === 'number' || NUMBER_WORDS.has(token?.key ?? '')
}

export function rewriteWords(tokens: readonly Token[], shouldNormalize: boolean): readonly Token[] {
  const rewritten: Token[] = []
  let before = ''
  for (const [index, token] of tokens.entries()) {
    const expanded = token.kind === 'word' ? expand(token, tokens[index + 1]) : undefined
    for (const word of expanded ?? [token]) {
      const plain = shouldNormalize && isPlainWord(word) ? normalizeWord(word.key, before) : undefined
      before = word.key
      const number = shouldNormalize && isPlainWord(word) ? NUMBER_WORDS.get(word.key) : undefined
      if (number !== undefined) rewritten.push({ ...word, kind: 'number', key: number })
      else if (plain === undefined) rewritten.push(word)
      else rewritten.push(...toWordTokens(word, plain))
    }
  }
  return rewritten
}

const PRONOUN_D = /^(i|you|he|she|we|they)'d$/

function expand(token: Token, next: Token | undefined): readonly Token[] | undefined {
  const expanded = CONTRACTIONS.get(token.key)
  if (expanded !== undefined) return toWordTokens(token, expanded)
  const pronoun = token.key.endsWith("'d") ? PRONOUN_D.exec(token.key)?.[1] : undefined
  if (pronoun === undefined || !AFTER_WOULD.has(next?.key ?? '')) return undefined
  return toWordTokens(token, [pronoun, 'would'])
}
