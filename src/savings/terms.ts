/** Stop words. */
const EMPTY_WORDS: ReadonlySet<string> = new Set(
  (
    'a an the and or but nor so yet if then than that this these those it its i me my mine we us our ours you your yours he him his ' +
    'she her hers they them their theirs who whom whose which what when where why how is are was were be been being am do does did ' +
    'done doing have has had having will would shall should can could may might must not no yes of to in on at by for with from into ' +
    'onto over under about as up down out off there here all any some each every both few more most other such only own same too very ' +
    'just also again once ever never please tell let got get go going like want know think thing lot okay ok yeah oh um uh hmm well ' +
    'really one two need make say said mean much many because while during before after between through'
  ).split(' '),
)

const NONE = 0
const LETTER = 1
const DIGIT = 2
/** Joins two words to a compound. */
const JOINT = 3

const CLASSES: Uint8Array = Uint8Array.from({ length: 128 }, (_, code) => {
  const sign = String.fromCharCode(code)
  if (/[A-Za-z_$]/.test(sign)) return LETTER
  if (/\d/.test(sign)) return DIGIT
  return /[-./:@'+]/.test(sign) ? JOINT : NONE
})

/** Longer words are keys or encoded files. */
const MAX_WORD_LENGTH = 64

/**
 * Returns the terms of a text in order, with repeats: stems of words, compounds whole and in parts, pairs of
 * ideographs. A term is a 30-bit hash. An index of numbers uses a tenth of the memory of an index of words, and a
 * collision only affects ranking.
 */
export function termsOf(text: string): number[] {
  const terms: number[] = []
  const add = (term: string): void => {
    terms.push(hashOf(term))
  }
  let at = 0
  while (at < text.length) {
    const start = skipToWord(text, at)
    at = endOfCompound(text, start)
    if (at > start) addCompound(text.slice(start, at), add)
  }
  return terms
}

function hashOf(term: string): number {
  let hash = 0x811c9dc5
  for (let at = 0; at < term.length; at++) hash = Math.imul(hash ^ term.charCodeAt(at), 0x01000193)
  return (hash ^ (hash >>> 17)) & 0x3fffffff
}

function skipToWord(text: string, from: number): number {
  let at = from
  while (at < text.length && !isWordSign(text.charCodeAt(at))) at++
  return at
}

function endOfCompound(text: string, start: number): number {
  let at = start
  while (at < text.length) {
    const code = text.charCodeAt(at)
    const joins = code < 128 && CLASSES[code] === JOINT && isWordSign(text.charCodeAt(at + 1))
    if (!joins && !isWordSign(code)) break
    at++
  }
  return at
}

function isWordSign(code: number): boolean {
  if (code < 128) return CLASSES[code] === LETTER || CLASSES[code] === DIGIT
  // General punctuation, arrows, boxes and ideographic signs stand between words; all other scripts are words.
  return code >= 0xc0 && (code < 0x2000 || code > 0x303f) && (code < 0xff00 || code > 0xff20) && code !== 0xfffd
}

function addCompound(compound: string, add: (term: string) => void): void {
  if (isIdeographic(compound.charCodeAt(0))) return addPairs(compound, add)
  const whole = compound.toLowerCase()
  if (whole.length > MAX_WORD_LENGTH) return
  const parts = partsOf(compound)
  if (parts.length > 1) add(whole)
  for (const part of parts) {
    const term = part.toLowerCase()
    if (!EMPTY_WORDS.has(term)) add(stemOf(term))
  }
}

/** Splits compounds at joints and underscores, and names at inner capitals. */
function partsOf(compound: string): readonly string[] {
  if (/^[a-z]+$|^[A-Z][a-z]*$|^\d+$/.test(compound)) return [compound]
  return compound
    .replace(/([a-z\d])([A-Z])/g, '$1 $2')
    .replace(/([A-Z])([A-Z][a-z])/g, '$1 $2')
    .split(/[-./:@'+_$ ]+/)
    .filter((part) => part.length > 1 || /[\d\u00c0-\uffff]/.test(part))
}

function isIdeographic(code: number): boolean {
  return code >= 0x3040 && code < 0xd800
}

function addPairs(text: string, add: (term: string) => void): void {
  for (let at = 0; at < text.length; at++) add(text.slice(at, at + 2))
}

/** A light English stemmer: plural, -ing, -ed, -ly. Words with digits stay as they are. */
export function stemOf(word: string): string {
  if (word.length < 4 || /\d/.test(word)) return word
  let stem = word
  if (/[^aeiou]ies$/.test(stem)) stem = `${stem.slice(0, -3)}y`
  else if (/(?:[sxz]|ch|sh)es$/.test(stem)) stem = stem.slice(0, -2)
  else if (/[^suai]s$/.test(stem)) stem = stem.slice(0, -1)
  const bare = stem.replace(/(?:ing|ed|ly)$/, '')
  if (bare !== stem && bare.length > 2 && /[aeiouy]/.test(bare)) stem = bare.replace(/([bdfgmnprt])\1$/, '$1')
  return stem.length > 3 ? stem.replace(/e$/, '') : stem
}
