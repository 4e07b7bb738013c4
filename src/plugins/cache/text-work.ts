import { words } from './english.ts'

/**
 * Recognizes texts that are to be worked on (proofread, translated, classified, counted), in which each letter and mark may
 * change the response. A false match only requires identical text for a hit.
 */

/** Words of work on a text that the same message contains. The text need not be marked: `proofread i has a cat`. */
const WORK_WORDS = words(
  `edit edits edited editing editor echo sentiment sentiments tone sentence sentences text texts paragraph paragraphs passage
  passages caption captions headline headlines following mean means meaning meanings language languages letter letters
  character characters word words wording syllable syllables apostrophe apostrophes comma commas uppercase lowercase anagram
  anagrams palindrome palindromes vowel vowels consonant consonants acronym acronyms synonym synonyms antonym antonyms define
  defines defined defining definition definitions slang dialect dialects verb verbs noun nouns adjective adjectives adverb
  adverbs plural plurals typo typos verbatim contraction contractions idiom idioms lyric lyrics poem poems poetry haiku haikus
  keyword keywords`,
)
/** All words that begin with one of these. */
const WORK_STEMS = words(
  `translat proofread correct rewrit rephras paraphras reword summar classif categori label extract transcri transliterat
  shorten repeat gramma spel misspel phras quot rhym pronounc pronunciation punctuat hyphen capitali abbreviat etymolog
  alphabet literal tokeni regex`,
)
const STEM_LENGTHS = [...new Set([...WORK_STEMS].map((stem) => stem.length))]
/** These words mean no work before some others: `say about`, `below the bridge`. */
const WORK_UNLESS: ReadonlyMap<string, ReadonlySet<string>> = new Map([
  ['say', words('about on in')],
  ['says', words('about on in')],
  ['below', words('the a an')],
])
const WORD = /\p{L}+/gu

/** Work on the messages that follow, in a system prompt or an earlier message. */
const TEXT_TASK =
  /(?<!\p{L})(?:fix\w*|convert\w*|transform\w*|formats?|reformat\w*|continu\w*|complete|completes|count\w*|rat(?:e|es|ed|ing)|rank\w*|scor(?:e|es|ed|ing)|grad(?:e|es|ed|ing)|judg\w*|criti\w*|review\w*|evaluat\w*|assess\w*|analy\w*|detect\w*|identif\w*|tag|tags|tagging|pars(?:e|es|ed|ing|er)|moderat\w*|spam|toxic\w*|polite\w*|register|style|voice|improv\w*|polish\w*|clarity|normali[sz]\w*|outputs?|inputs?|returns?|terminal|shell|console|interpreter|compiler|simulat\w*|act as|pretend\w*|role[- ]?play\w*|repl(?:y|ies) (?:to|with)|respond (?:to|with)|answer with|messages?|emails?|tweets?|titles?|lines?|names?|entit\w*|json|yaml|xml|html|markdown|sql|case|english|french|german|spanish|italian|latin|what\w*ver|this|wrote|written|decide\w*|exactly|notes?|record\w*|dictat\w*|stenograph\w*|listen\w*|hear|what (?:the user|i|they|users?) (?:write|writes|say|says|type|types|send|sends))(?!\p{L})/iu

export function mentionsTextWork(text: string): boolean {
  const found = text.toLowerCase().match(WORD) ?? []
  return found.some((word, index) => {
    if (WORK_WORDS.has(word) || STEM_LENGTHS.some((length) => WORK_STEMS.has(word.slice(0, length)))) return true
    const exceptions = WORK_UNLESS.get(word)
    return exceptions !== undefined && !exceptions.has(found[index + 1] ?? '')
  })
}

/** Returns true if the messages after this text may be data for a task that it describes. */
export function mayDescribeTask(text: string): boolean {
  return mentionsTextWork(text) || TEXT_TASK.test(text)
}

/** A system prompt for questions and responses, or one that asks only for a manner: `Be brief.` */
const ANSWERING =
  /(?<!\p{L})(?:assistants?|answer(?:s|ing)?|questions?|support|help ?desk|customers?|concierge|faq)(?!\p{L})|^be [a-z]+(?:,? and [a-z]+)?[.!]?$/iu

/** Returns true if the user messages below this system prompt are questions, as far as its words tell. */
export function asksForResponses(system: string): boolean {
  return ANSWERING.test(system) && !mayDescribeTask(system)
}

/** Questions about wording, characters or courtesy itself, in which each courtesy and spelling may change the response. */
const ABOUT_WORDING =
  /(?<!\p{L})(?:greet\w*|(?:im)?polite\w*|rude\w*|courte\w*|manners|(?:in)?formal\w*|subtext|insult\w*|memes?|stand\w? for|(?:react|respond|repl)\w* to|siri|alexa|chatbots?|md5|sha|crc|hash\w*|checksums?|base ?\d\d|(?:en|de)cod\w*|(?:en|de)crypt\w*|cipher\w*|morse|ascii|unicode|utf|bytes?|code ?points?|whitespace|typograph\w*|fonts?|glyph\w*|kerning|keyboards?|parsers?|marks? (?:in|of|after|before)|(?:this|that) (?:question|message|request|prompt)|the message|thanking|thanked)(?!\p{L})|(?<!\p{L})(?:i|you|we|to) thank/iu

export function isAboutWording(text: string): boolean {
  return ABOUT_WORDING.test(text)
}

/**
 * Questions about what people type, in which a misspelling may be the subject. Excludes `type of`. Others, such as
 * `who came up with garantee`, look like questions with a typo.
 */
const ABOUT_TYPING =
  /(?<!\p{L})(?:typ(?:e|es|ed|ing)(?! of)|writ(?:e|es|ing|ten)|contain\w*|misread\w*|mistakes?|errors? (?:is|are) in|dictionar\w*|essays?|said|double \p{L}|(?:one|two|three) \p{L}|(?:odd|strange|weird|unusual) (?:about|in)|which is (?:right|correct)|wrong with(?! (?:my|the|an?|your|our|this|that|it|his|her)(?!\p{L}))|(?:looks?|sounds?|reads?) (?:right|wrong|correct|odd|off|ok|okay|fine|good|bad|natural|strange|weird))(?!\p{L})/iu
/** Words before or after a line or title, in which `can't` and `cannot` differ. */
const QUOTING =
  /(?<!\p{L})(?:lines?|songs?|sing|sings|sang|chorus|films?|movies?|novels?|albums?|titles?|titled|shorter|shortest|longer|story|stories|jokes?|slogans?|scripts?)(?!\p{L})/iu

export function mayBeAboutSpelling(text: string): boolean {
  return ABOUT_TYPING.test(text)
}

export function mayQuote(text: string): boolean {
  return ABOUT_TYPING.test(text) || QUOTING.test(text)
}

/** Words before a title, which may end in a courtesy: `who sang yes please` */
const BEFORE_TITLES =
  /(?<!\p{L})(?:wrote|author|direct(?:ed|or|s)|starr(?:ed|ing)|stars|compos(?:ed|er)|recorded|released|published|covered|produced|perform(?:ed|s)|plays|played|actors?|actress|bands?|episodes?|series|musicals?|plays?|books?|tracks?|poets?)(?!\p{L})/iu

export function mayEndInTitle(text: string): boolean {
  return mayQuote(text) || BEFORE_TITLES.test(text)
}

/** Marks that set off a text to work on, other than a colon or a dash, which may also follow a courtesy. */
const MARKED_TEXT =
  /[\n\r\t\v\f\u2028\u2029"`“”„‟«»‹›「」『』《》‘({[\]})<>=;|\\*_•→]|(?<![\p{L}\p{N}])['’]|['’](?![\p{L}\p{N}])|\.{2}|…/u

export function hasMarkedText(text: string): boolean {
  return MARKED_TEXT.test(text)
}
