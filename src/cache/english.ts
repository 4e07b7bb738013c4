/**
 * What may differ between two English texts that ask the same. Only what never changes an answer stands here; every
 * other word is content and must agree.
 */

/** Words that make a text English: none of them is a common word of another language written in Latin letters. */
export const ENGLISH_MARKS: ReadonlySet<string> = words(
  `what how the are does who why which where when should you my explain would could with this these those that write tell
  please give show there their they your its been have from has it's what's whats who's how's where's don't doesn't didn't
  isn't aren't can't i'm i've i'd did and about between she`,
)

/** Two of these make a text English as well; each alone is also a word of other languages. */
export const ENGLISH_HINTS: ReadonlySet<string> = words('is it to or be at not of by as on for in with if that you')

/** Words behind which an article cannot be a letter (vitamin A) or a foreign word, so that it may be missing. */
export const BEFORE_ARTICLE: ReadonlySet<string> = words(
  `is are was were be been being am do does did has have had can could will would shall should may might must
  of in on at to for from by with without about into onto over under between through during before after since until
  against among within across behind as than like and or but if when while because that which what who how where why
  not only also give show write make build create get use using become becoming tell explain describe list find need
  want buy open read see`,
)

/** An article before these is part of their meaning: a few is not few, the most is not most. */
export const AFTER_BOUND_ARTICLE: ReadonlySet<string> = words(
  `few little lot bit number couple great good most least more less best worst first last second third one other others
  same only half who whole all`,
)

/** May stand anywhere without saying anything, unless a negation stands before them. */
export const FILLERS: ReadonlySet<string> = words('actually really basically indeed')

export const NEGATIONS: ReadonlySet<string> = words(
  `not no never none nobody nothing neither nor nowhere without hardly barely rarely seldom cannot n't
  nicht kein keine keinen keiner keinem nie niemals ohne pas jamais sans aucun aucune nunca jamás sin ningún ninguna
  mai senza nessun nessuna niet geen nooit zonder não nem sem inte ikke ei nie bez не нет без никогда`,
)

export const QUESTION_WORDS: ReadonlySet<string> = words('what who whom whose when where why how which')

const SHORT_FORMS: readonly (readonly [RegExp, string])[] = [
  [/^(can't|cant)$/, 'can not'],
  [/^cannot$/, 'can not'],
  [/^won't$/, 'will not'],
  [/^shan't$/, 'shall not'],
  [/^ain't$/, 'is not'],
  [/^(is|are|was|were|do|does|did|has|have|had|could|would|should|must|need|might)n't$/, '$1 not'],
  [/^(isn|aren|wasn|weren|don|doesn|didn|hasn|haven|hadn|couldn|wouldn|shouldn|mustn)t$/, '$1 t'],
  [/^(i)'?m$/, 'i am'],
  [/^(you|we|they|who|what|where|how)'re$/, '$1 are'],
  [/^(i|you|we|they|who|could|would|should|might|must)'ve$/, '$1 have'],
  [/^ive$/, 'i have'],
  [/^youre$/, 'you are'],
  [/^theyre$/, 'they are'],
  [/^(i|you|he|she|it|we|they|that|there|this|what|who)'ll$/, '$1 will'],
  [/^(what|who|where|when|why|how|that|there|here|it|he|she)'s$/, '$1 is'],
  [/^(what|where|how)s$/, '$1 is'],
  [/^let's$/, 'let us'],
  [/^y'all$/, 'you all'],
]

/** `what's` as `what is`; the word itself when it is not a short form. */
export function expandShortForm(word: string): readonly string[] {
  const row = SHORT_FORMS.find(([pattern]) => pattern.test(word))
  if (row === undefined) return [word]
  const [pattern, long] = row
  return word
    .replace(pattern, long)
    .replace(/^(.+)n t$/, '$1 not')
    .split(' ')
}

/** 'd before these is would; elsewhere it may be had. */
export const AFTER_WOULD: ReadonlySet<string> = words('like love prefer rather appreciate')

const SPELLINGS: readonly (readonly [RegExp, string])[] = [
  [/^(\w{4,})is(e|es|ed|ing|ation|ations|er|ers)$/, '$1iz$2'],
  [/^(anal|paral|catal)ys(e|es|ed|ing)$/, '$1yz$2'],
  [/^(col|fav|hon|lab|flav|behavi|neighb|hum|rum|harb|vap|arm|endeav|tum|savi|od|vig)our/, '$1or'],
  [/^(cent|theat|fib|lit|met|calib|kilomet|centimet|millimet|millilit)re(s?)$/, '$1er$2'],
  [/^(catalog|dialog|analog)ue(s?)$/, '$1$2'],
  [/^(trave|cance|mode|labe|signa|leve|fue|jewe|counse)ll(ed|ing|er|ers)$/, '$1l$2'],
]

/** Pairs that no question tells apart. Numbers, negations and comparisons never stand here. */
const SAME_WORDS: ReadonlyMap<string, string> = new Map(
  [
    'purchase buy|purchases buys|purchased bought|purchasing buying|begin start|begins starts|beginning starting',
    'began started|movie film|movies films|photo picture|photos pictures|photograph picture',
    'photographs pictures|okay ok|alright ok|television tv|telephone phone|kids children|kid child|mum mother|mom mother',
    'dad father|automobile car|automobiles cars|repair fix|repairs fixes|repaired fixed|repairing fixing',
    'assist help|utilize use|utilise use|utilizing using|utilising using|grey gray|programme program|programmes programs',
    'defence defense|offence offense|licence license|aluminium aluminum|tyre tire|tyres tires|jewellery jewelry',
    'maths math|mathematics math|learnt learned|spelt spelled|burnt burned|whilst while|amongst among|towards toward',
    'advert ad|adverts ads|advertisement ad|advertisements ads|info information|cellphone phone|huge enormous|large big',
    'larger bigger|largest biggest|difficult hard|quick fast|quickly fast|rapidly fast|select choose|obtain get',
    'folder directory|folders directories|require need|requires needs|required needed|frequently often|physician doctor',
    'physicians doctors|gonna going-to|wanna want-to|u you|ur your|pls please|plz please|thx thanks|btw by-the-way',
    'shut close|reply answer|attempt try|demonstrate show|construct build|sofa couch|autumn fall',
  ].flatMap((row) => row.split('|').map((pair) => pair.split(' ') as [string, string])),
)

/** One spelling for both sides of the ocean, and one word for words of one meaning. */
export function plainSpelling(word: string): readonly string[] {
  const row = SPELLINGS.find(([pattern]) => pattern.test(word))
  const spelled = row === undefined ? word : word.replace(row[0], row[1])
  return (SAME_WORDS.get(spelled) ?? spelled).split('-')
}

const ASK = '(?:what|who|whom|whose|when|where|why|how|which)'
const TELL = '(?:tell me|explain to me|let me know|inform me|remind me)'
const REQUEST =
  '(?:tell|explain|describe|show|give|help|write|summarize|list|translate|provide|suggest|recommend|create|make|generate|find|convert|compare|define|fix|check|review|draft|outline|rewrite|calculate|compute|solve|analyze|name|teach|walk|clarify|elaborate|send|build)'
const MODAL = '(?:can|could|would|will)'

/** Courtesies at the head of a text, matched against its words joined by blanks; each may uncover the next. */
export const OPENINGS: readonly RegExp[] = [
  /^(?:hi|hello|hey|greetings|good (?:morning|afternoon|evening))(?: there| everyone| all)?(?: [.,!])* (?=\S)/,
  /^(?:please|kindly|ok|so|well|by the way|in fact)(?: ,)? (?=\S)/,
  /^(?:i have a (?:quick )?question|(?:quick )?question)(?: [.,:])+ (?=\S)/,
  new RegExp(`^(?:${MODAL} you (?:please )?)?(?:please )?${TELL}(?: please)?(?: [,:])? (?=${ASK} )`),
  new RegExp(
    `^i (?:want|need|would like|would love|am trying) to (?:know|ask|understand|find out|learn)(?: [,:])? (?=${ASK} )`,
  ),
  new RegExp(`^(?:i am|i was)(?: just)? (?:wondering|curious)(?: about)?(?: [,:])? (?=${ASK} )`),
  new RegExp(`^(?:do you (?:happen to )?know|may i (?:ask|know)|any idea)(?: [,:])? (?=${ASK} )`),
  new RegExp(`^${MODAL} you(?: please)? (?=${REQUEST} )`),
  new RegExp(`^i (?:want|need|would like) you to (?=${REQUEST} )`),
]

/** The openings behind which the question stands in the order of a clause: `tell me what the price is`. */
export const CLAUSE_OPENING: RegExp = new RegExp(
  `(?:${TELL}|know|ask|understand|out|learn|wondering|curious|about|idea)(?: please)? $`,
)

/** Words that begin the subject of such a clause; `what problems were found` has its subject in `what`. */
export const SUBJECT_OPENINGS: ReadonlySet<string> = words(
  'the a an my your his her its our their this that these those i you he she it we they',
)

/** Thanks and pleas at the end of a text. */
export const ENDING: RegExp =
  /(?<=\S)(?: [.,!?])*(?: (?:please|thanks|thank you|cheers)(?: (?:so|very) much| a lot| in advance)*)(?: [.,!?])*$/

/** `how do I`, `how can I`, `how does one` ask how to. */
export const HOW_TO: RegExp = /\bhow (?:(?:can|do) (?:i|one)|does one)(?= (?!not\b)[a-z])/

/** A text with one of these speaks about spelling or wording itself: in it every letter counts. */
export const ABOUT_LETTERS: ReadonlySet<string> = words(
  `spell spelled spelt spelling spells misspelled misspelling typo typos proofread grammar grammatical grammatically
  correct corrected correctly correction letter letters anagram pronounce pronounced pronunciation rhyme rhymes rhyming
  syllable syllables vowel vowels consonant consonants character characters capitalize capitalized capitalise uppercase
  lowercase capital-letters translate translated translation translating sentence sentences paraphrase rephrase reword
  rewrite edit verbatim punctuation apostrophe contraction contractions literally transcribe alphabet alphabetically`,
)

/** A text with one of these may speak about a word: in it no other word stands for it. */
export const ABOUT_WORDS: ReadonlySet<string> = words(
  `word words synonym synonyms antonym antonyms define definition mean means meaning difference differences differ
  distinction vs versus compare compared comparison between keyword keywords command statement term terms say said called
  british american dialect slang etymology language`,
)

/** Words whose capital letter makes another word of them. */
export const CASE_MATTERS: ReadonlySet<string> = words(
  `us it who aids am pm or in polish turkey china nice reading bath march may august will mark bill grant jack rose dawn
  hope faith grace apple amazon shell target gap oracle windows word excel access teams swift go rust ruby cat pin ram
  job mercury mars lima chile chad jordan georgia java mobile orange guinea`,
)

function words(list: string): ReadonlySet<string> {
  return new Set(list.split(/\s+/))
}
