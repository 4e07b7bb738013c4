const STOP_WORDS: ReadonlySet<string> = new Set(
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
/** A character that may join two words into a compound. */
const JOINER = 3

const ASCII_CLASSES: Uint8Array = Uint8Array.from({ length: 128 }, (_, code) => {
  const character = String.fromCharCode(code)
  if (/[A-Za-z_$]/.test(character)) return LETTER
  if (/\d/.test(character)) return DIGIT
  return /[-./:@'+]/.test(character) ? JOINER : NONE
})

/** Longer words, usually keys or encoded data, are ignored. */
const MAX_WORD_LENGTH = 64

/**
 * Returns the terms of a text in order, with repeats: word stems, compounds and their parts, and pairs of CJK characters.
 * Terms are 30-bit hashes, which take less memory than strings. A collision affects only the ranking.
 */
export function termsOf(text: string): number[] {
  const terms: number[] = []
  const add = (term: string): void => {
    terms.push(hashOf(term))
  }
  let position = 0
  while (position < text.length) {
    const start = skipToWord(text, position)
    position = endOfCompound(text, start)
    if (position > start) addCompound(text.slice(start, position), add)
  }
  return terms
}

function hashOf(term: string): number {
  let hash = 0x811c9dc5
  for (let index = 0; index < term.length; index++) hash = Math.imul(hash ^ term.charCodeAt(index), 0x01000193)
  return (hash ^ (hash >>> 17)) & 0x3fffffff
}

function skipToWord(text: string, from: number): number {
  let position = from
  while (position < text.length && !isWordCharacter(text.charCodeAt(position))) position++
  return position
}

function endOfCompound(text: string, start: number): number {
  let position = start
  while (position < text.length) {
    const code = text.charCodeAt(position)
    const isJoiner = code < 128 && ASCII_CLASSES[code] === JOINER && isWordCharacter(text.charCodeAt(position + 1))
    if (!isJoiner && !isWordCharacter(code)) break
    position++
  }
  return position
}

function isWordCharacter(code: number): boolean {
  if (code < 128) return ASCII_CLASSES[code] === LETTER || ASCII_CLASSES[code] === DIGIT
  // Excludes punctuation, arrows, box drawings, and full-width punctuation and digits.
  return code >= 0xc0 && (code < 0x2000 || code > 0x303f) && (code < 0xff00 || code > 0xff20) && code !== 0xfffd
}

function addCompound(compound: string, add: (term: string) => void): void {
  if (isCjk(compound.charCodeAt(0))) return addPairs(compound, add)
  const lowerCase = compound.toLowerCase()
  if (lowerCase.length > MAX_WORD_LENGTH) return
  const parts = partsOf(compound)
  if (parts.length > 1) add(lowerCase)
  for (const part of parts) {
    const term = part.toLowerCase()
    if (!STOP_WORDS.has(term)) add(stemOf(term))
  }
}

/** Splits at joiners and underscores, and at capitals inside identifiers. */
function partsOf(compound: string): readonly string[] {
  if (/^[a-z]+$|^[A-Z][a-z]*$|^\d+$/.test(compound)) return [compound]
  return compound
    .replace(/([a-z\d])([A-Z])/g, '$1 $2')
    .replace(/([A-Z])([A-Z][a-z])/g, '$1 $2')
    .split(/[-./:@'+_$ ]+/)
    .filter((part) => part.length > 1 || /[\d\u00c0-\uffff]/.test(part))
}

function isCjk(code: number): boolean {
  return code >= 0x3040 && code < 0xd800
}

function addPairs(text: string, add: (term: string) => void): void {
  for (let index = 0; index < text.length; index++) add(text.slice(index, index + 2))
}

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
