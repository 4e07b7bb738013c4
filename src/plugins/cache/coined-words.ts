import { words } from './english.ts'
import type { Lexicon } from './typos.ts'

/**
 * Recognizes unknown words that are names by their form, not misspellings: chemicals, medicines and words that are composed
 * of two others. Dictionaries contain few of them.
 */

/** Endings of chemicals and medicines. */
const SUBSTANCE =
  /(?:yl(?:ate|ene|ine|ide|ol)|[aey]ne|ine|one|ide|[ao]se|ol|ole|ium|yl|[ai]te|fen|thion|pril|vir|cin|pam|sartan|mab)s?$/
/** Endings of common words that are no substances. */
const NO_SUBSTANCE =
  /(?:phone|line|[ms]ide|vide|base|chase|[aeu]ase|[lpr]ose|zine|chine|gine|school|control|symbol|[cdgklmrstv]ate|[aeuv]te|[ms]ite|white)s?$/

/** `menthane` is not methane, and `nitrofen` is not nitrogen. */
function mayBeSubstance(word: string, typo: string): boolean {
  const ending = SUBSTANCE.exec(typo)?.[0]
  if (ending === undefined) return false
  return !word.endsWith(ending) || !NO_SUBSTANCE.test(word)
}

const PREFIXES = words(
  `re de pre un non sub mis dis inter multi micro macro meta auto anti over out super hyper nano poly mono bio geo neuro py nu`,
)
const MIN_PART_LENGTH = 3
const MIN_LAST_PART_LENGTH = 4

/** `debounce` is not denounce: it is composed of `de` and `bounce`. */
function isComposed(typo: string, lexicon: Lexicon): boolean {
  for (let at = 2; at <= typo.length - MIN_LAST_PART_LENGTH; at += 1) {
    const first = typo.slice(0, at)
    const isPart = PREFIXES.has(first) || (at >= MIN_PART_LENGTH && lexicon(first) === 'common')
    if (isPart && lexicon(typo.slice(at)) === 'common') return true
  }
  return false
}

/** @param word A common word that is one typo away from the unknown word. */
export function isCoined(word: string, typo: string, lexicon: Lexicon): boolean {
  const isSwap = word.length === typo.length && [...word].toSorted().join('') === [...typo].toSorted().join('')
  if (isSwap) return false
  return mayBeSubstance(word, typo) || (withoutRepeats(word) !== withoutRepeats(typo) && isComposed(typo, lexicon))
}

/** `passsword` is not composed of `pass` and `sword`. */
function withoutRepeats(word: string): string {
  return word.replace(/(.)\1+/g, '$1')
}

/** Questions about chemicals and medicines, in which a name that resembles another word may do harm. */
const ABOUT_SUBSTANCES =
  /(?<!\p{L})(?:dos(?:e|es|age)|overdos\w*|mg|pills?|tablets?|capsules?|drugs?|medications?|medicines?|side effects?|antidotes?|prescri\w*|pharmac\w*|pregnan\w*|antibiotic\w*|inject\w*|molar|molecul\w*|toxic\w*|poison\w*|flammable|chemical\w*|solvents?|acids?)(?!\p{L})/iu

export function isAboutSubstances(text: string): boolean {
  return ABOUT_SUBSTANCES.test(text)
}
