const SPACE = 0
const LINE_END = 1
const LOWER = 2
const UPPER = 3
const DIGIT = 4
const SYMBOL = 5

const CLASSES: Uint8Array = Uint8Array.from({ length: 128 }, (_, code) => classOf(String.fromCharCode(code)))
const VOWELS: Uint8Array = Uint8Array.from({ length: 128 }, (_, code) =>
  /[aeiouy]/i.test(String.fromCharCode(code)) ? 1 : 0,
)

function classOf(character: string): number {
  if (/[\r\n]/.test(character)) return LINE_END
  if (/\s/.test(character)) return SPACE
  if (/[a-z]/.test(character)) return LOWER
  if (/[A-Z]/.test(character)) return UPPER
  return /\d/.test(character) ? DIGIT : SYMBOL
}

/** Tokens per feature, fitted to exact o200k counts of prose, code, tool results and meeting transcripts. */
const WEIGHTS = {
  word: 1.04,
  letterBeyondFive: 0.044,
  letterBeyondFourteen: 0.3,
  // Long runs of consonants occur in keys and hashes.
  consonantBeyondThree: 0.4,
  threeDigits: 1.08,
  lineEnds: 0.4,
  spaces: 1.06,
  symbols: 0.83,
  repeatedSymbol: 0.05,
  differentSymbol: 0.25,
  latin: 0.55,
  nonLatinAlphabet: 0.38,
  cjk: 0.85,
  otherScript: 1.7,
}

/**
 * Estimates the number of o200k tokens in a string in one pass, at about 50 MB per second. The error is about 10% for
 * a single string and 1% on average. The estimate is between bytes / 8 and bytes.
 */
export function estimateTokens(text: string): number {
  let sum = 0
  let index = 0
  let bytes = text.length
  while (index < text.length) {
    const code = text.charCodeAt(index)
    if (code >= 128) {
      sum += nonAsciiWeight(code)
      bytes += code < 0x800 || (code >= 0xd800 && code < 0xe000) ? 1 : 2
      index++
      continue
    }
    const kind = CLASSES[code] ?? SYMBOL
    const end = kind === LOWER || kind === UPPER ? endOfWord(text, index) : endOfRun(text, index, kind)
    sum += kind === LOWER || kind === UPPER ? wordTokens(text, index, end) : runTokens(text, index, end)
    index = end
  }
  return Math.round(Math.min(bytes, Math.max(bytes / 8, sum)))
}

function nonAsciiWeight(code: number): number {
  if (code < 0x300) return WEIGHTS.latin
  if (code < 0x2000) return WEIGHTS.nonLatinAlphabet
  if (code >= 0x3040 && code < 0xd800) return WEIGHTS.cjk
  return WEIGHTS.otherScript
}

function endOfRun(text: string, start: number, kind: number): number {
  let end = start + 1
  while (end < text.length && CLASSES[text.charCodeAt(end)] === kind) end++
  return end
}

/**
 * Returns the end of a run of uppercase letters and the lowercase letters after it. The tokenizer splits `fooBar`
 * before `Bar`.
 */
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
  for (let index = start; index < end; index++) {
    consonants = VOWELS[text.charCodeAt(index)] === 1 ? 0 : consonants + 1
    if (consonants > 3) tokens += WEIGHTS.consonantBeyondThree
  }
  return tokens
}

function runTokens(text: string, start: number, end: number): number {
  const length = end - start
  const kind = CLASSES[text.charCodeAt(start)]
  if (kind === DIGIT) return WEIGHTS.threeDigits * Math.ceil(length / 3)
  if (kind === LINE_END) return WEIGHTS.lineEnds
  if (kind === SYMBOL) return symbolTokens(text, start, end)
  const isBeforeDigit = length === 1 && CLASSES[text.charCodeAt(end)] === DIGIT
  return length > 1 || isBeforeDigit ? WEIGHTS.spaces : 0
}

function symbolTokens(text: string, start: number, end: number): number {
  let tokens = WEIGHTS.symbols
  for (let index = start + 1; index < end; index++) {
    tokens += text.charCodeAt(index) === text.charCodeAt(index - 1) ? WEIGHTS.repeatedSymbol : WEIGHTS.differentSymbol
  }
  return tokens
}
