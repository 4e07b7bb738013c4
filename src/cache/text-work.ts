/**
 * Recognizes texts that are to be worked on (proofread, translated, classified, counted), in which each letter and mark may
 * change the answer. A false match only requires identical text for a hit.
 */

/** Work on a text that the same message contains. The text need not be marked: `proofread i has a cat`. */
const TEXT_WORK =
  /(?<!\p{L})(?:translat\w*|proofread\w*|correct\w*|rewrit\w*|rephras\w*|paraphras\w*|reword\w*|summar\w*|edit(?:s|ed|ing|or)?|classif\w*|categori\w*|label\w*|extract\w*|transcri\w*|transliterat\w*|shorten\w*|repeat\w*|echo|sentiments?|tone|gramma\w*|(?:mis)?spel\w*|sentences?|texts?|paragraphs?|passages?|phras\w*|quot\w*|captions?|headlines?|below(?! (?:the|an?)\b)|following|says?(?! (?:about|on|in)\b)|mean|means|meanings?|languages?|letters?|characters?|words?|wording|syllables?|rhym\w*|pronounc\w*|pronunciation|punctuat\w*|apostrophes?|commas?|hyphen\w*|capitali\w*|uppercase|lowercase|anagrams?|palindromes?|vowels?|consonants?|abbreviat\w*|acronyms?|synonyms?|antonyms?|defin(?:e|es|ed|ing|ition|itions)|etymolog\w*|slang|dialects?|verbs?|nouns?|adjectives?|adverbs?|plurals?|typos?|alphabet\w*|verbatim|literal\w*|contractions?|idioms?|lyrics?|poems?|poetry|haikus?|tokeni[sz]\w*|regex\w*|keywords?)(?!\p{L})/iu

/** Work on the messages that follow, in a system prompt or an earlier message. */
const TEXT_TASK =
  /(?<!\p{L})(?:fix\w*|convert\w*|transform\w*|formats?|reformat\w*|continu\w*|complete|completes|count\w*|rat(?:e|es|ed|ing)|rank\w*|scor(?:e|es|ed|ing)|grad(?:e|es|ed|ing)|judg\w*|criti\w*|review\w*|evaluat\w*|assess\w*|analy\w*|detect\w*|identif\w*|tag|tags|tagging|pars(?:e|es|ed|ing|er)|moderat\w*|spam|toxic\w*|polite\w*|register|style|voice|improv\w*|polish\w*|clarity|normali[sz]\w*|outputs?|inputs?|returns?|terminal|shell|console|interpreter|compiler|simulat\w*|act as|pretend\w*|role[- ]?play\w*|repl(?:y|ies) (?:to|with)|respond (?:to|with)|answer with|messages?|emails?|tweets?|titles?|lines?|names?|entit\w*|json|yaml|xml|html|markdown|sql|case|english|french|german|spanish|italian|latin|what\w*ver|what (?:the user|i|they|users?) (?:write|writes|say|says|type|types|send|sends))(?!\p{L})/iu

export function mentionsTextWork(text: string): boolean {
  return TEXT_WORK.test(text)
}

/** Returns true if the messages after this text may be data for a task that it describes. */
export function mayDescribeTask(text: string): boolean {
  return TEXT_WORK.test(text) || TEXT_TASK.test(text)
}

/** Marks that set off a text to work on, other than a colon or a dash, which may also follow a courtesy. */
const MARKED_TEXT =
  /[\n\r\t\v\f\u2028\u2029"`“”„‟«»‹›「」『』《》‘({[\]})<>=;|\\*_•→]|(?<![\p{L}\p{N}])['’]|['’](?![\p{L}\p{N}])|\.{2}|…/u

export function hasMarkedText(text: string): boolean {
  return MARKED_TEXT.test(text)
}
