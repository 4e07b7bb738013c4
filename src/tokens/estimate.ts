const BLANK = 0
const LINE_END = 1
const LOWER = 2
const UPPER = 3
const DIGIT = 4
const SIGN = 5

const CLASSES: Uint8Array = Uint8Array.from({ length: 128 }, (_, code) => classOf(String.fromCharCode(code)))
const VOWELS: Uint8Array = Uint8Array.from({ length: 128 }, (_, code) =>
  /[aeiouy]/i.test(String.fromCharCode(code)) ? 1 : 0,
)

function classOf(sign: string): number {
  if (/[\r\n]/.test(sign)) return LINE_END
  if (/\s/.test(sign)) return BLANK
  if (/[a-z]/.test(sign)) return LOWER
  if (/[A-Z]/.test(sign)) return UPPER
  return /\d/.test(sign) ? DIGIT : SIGN
}

/** Number of tokens per feature of a text. */
interface Weights {
  readonly word: number
  readonly letterBeyondFive: number
  readonly letterBeyondFourteen: number
  /** Long runs of consonants occur in keys, hashes and codes. */
  readonly consonantBeyondThree: number
  readonly threeDigits: number
  readonly lineEnds: number
  readonly blanks: number
  readonly signs: number
  readonly sameSignAgain: number
  readonly otherSign: number
  readonly latin: number
  readonly alphabet: number
  readonly ideograph: number
  readonly symbol: number
}

/** Fitted on prose, code, tool output and meetings against exact o200k counts. */
const WEIGHTS: Weights = {
  word: 1.04,
  letterBeyondFive: 0.044,
  letterBeyondFourteen: 0.3,
  consonantBeyondThree: 0.4,
  threeDigits: 1.08,
  lineEnds: 0.4,
  blanks: 1.06,
  signs: 0.83,
  sameSignAgain: 0.05,
  otherSign: 0.25,
  latin: 0.55,
  alphabet: 0.38,
  ideograph: 0.85,
  symbol: 1.7,
}

/**
 * Estimates the o200k tokens of a text in one pass, at about 200 MB per second. The error is about a tenth for one text
 * and 1 % over many. The estimate is between bytes / 8 and bytes.
 */
export function estimateTokens(text: string): number {
  let sum = 0
  let at = 0
  let bytes = text.length
  while (at < text.length) {
    const code = text.charCodeAt(at)
    if (code >= 128) {
      sum += weightBeyondAscii(code)
      bytes += code < 0x800 || (code >= 0xd800 && code < 0xe000) ? 1 : 2
      at++
      continue
    }
    const kind = CLASSES[code] ?? SIGN
    const end = kind === LOWER || kind === UPPER ? endOfWord(text, at) : endOfRun(text, at, kind)
    sum += kind === LOWER || kind === UPPER ? wordTokens(text, at, end) : runTokens(text, at, end)
    at = end
  }
  return Math.round(Math.min(bytes, Math.max(bytes / 8, sum)))
}

function weightBeyondAscii(code: number): number {
  if (code < 0x300) return WEIGHTS.latin
  if (code < 0x2000) return WEIGHTS.alphabet
  if (code >= 0x3040 && code < 0xd800) return WEIGHTS.ideograph
  return WEIGHTS.symbol
}

function endOfRun(text: string, start: number, kind: number): number {
  let end = start + 1
  while (end < text.length && CLASSES[text.charCodeAt(end)] === kind) end++
  return end
}

/** Returns the end of upper-case and then lower-case letters, as the tokenizer splits `fooBar` and `JSONText`. */
function endOfWord(text: string, start: number): number {
  let end = start
  while (end < text.length && CLASSES[text.charCodeAt(end)] === UPPER) end++
  while (end < text.length && CLASSES[text.charCodeAt(end)] === LOWER) end++
  return end
}

function wordTokens(text: string, start: number, end: number): number {
  const length = end - start
  let tokens = WEIGHTS.word
  if (length > 5) tokens += WEIGHTS.letterBeyondFive * (length - 5)
  if (length > 14) tokens += WEIGHTS.letterBeyondFourteen * (length - 14)
  let consonants = 0
  for (let at = start; at < end; at++) {
    consonants = VOWELS[text.charCodeAt(at)] === 1 ? 0 : consonants + 1
    if (consonants > 3) tokens += WEIGHTS.consonantBeyondThree
  }
  return tokens
}

function runTokens(text: string, start: number, end: number): number {
  const length = end - start
  const kind = CLASSES[text.charCodeAt(start)]
  if (kind === DIGIT) return WEIGHTS.threeDigits * Math.ceil(length / 3)
  if (kind === LINE_END) return WEIGHTS.lineEnds
  if (kind === SIGN) return signTokens(text, start, end)
  const beforeDigit = length === 1 && CLASSES[text.charCodeAt(end)] === DIGIT
  return length > 1 || beforeDigit ? WEIGHTS.blanks : 0
}

function signTokens(text: string, start: number, end: number): number {
  let tokens: number = WEIGHTS.signs
  for (let at = start + 1; at < end; at++) {
    tokens += text.charCodeAt(at) === text.charCodeAt(at - 1) ? WEIGHTS.sameSignAgain : WEIGHTS.otherSign
  }
  return tokens
}
