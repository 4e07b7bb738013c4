/** `exact`: every letter matters, as in quotations, code, addresses and identifiers. `stop`: the end of a sentence. */
type TokenKind = 'word' | 'number' | 'exact' | 'symbol' | 'stop'

export interface Token {
  readonly kind: TokenKind
  readonly raw: string
  /** The compared form: words in lower case. */
  readonly key: string
  /** True at the beginning of a sentence, where a capital letter does not mark a name. */
  readonly startsSentence: boolean
  /** True if a space precedes the token. */
  readonly isSpaced: boolean
}

const FENCE = '```[\\s\\S]*?(?:```|$)'
const CODE = '`[^`]*`'
const QUOTED = '"[^"]*"|‘[^‘’]*’(?!\\p{L})|«[^«»]*»|„[^„“”]*[“”]|“[^“”]*”|「[^「」]*」|『[^『』]*』|《[^《》]*》'
const SINGLE_QUOTED = "(?<![\\p{L}\\p{N}])'[^']+'(?![\\p{L}\\p{N}])"
/** Text without spaces that contains a character typical of addresses, paths or code. */
const ADDRESS = '[^\\s"`]{0,64}?(?:://|@|\\\\|\\w/|/\\w|_)[^\\s"`]*'
/** Mixed letters and digits (GPT4o), inner capitals (getName) or inner dots (obj.method), but not 5kg. */
const IDENTIFIER =
  '\\p{L}[\\p{L}\\p{M}]*(?:\\p{N}[\\p{L}\\p{N}]*|\\.[\\p{L}\\p{N}]+)+|\\p{L}*\\p{Ll}\\p{Lu}[\\p{L}\\p{N}]*|\\p{Lu}{2,}\\p{Ll}[\\p{L}\\p{N}]*'
const NUMBER = '\\p{N}+(?:[.,:]\\p{N}+)*'
const WORD = "\\p{L}[\\p{L}\\p{M}]*(?:['’]\\p{L}+)*"

const TOKEN = tokenPattern(ADDRESS)
/** Matching addresses is the most expensive part of `TOKEN`. */
const TOKEN_WITHOUT_ADDRESS = tokenPattern('(?!)')
const ADDRESS_CHARACTER = /[/\\@_]/
const TRAILING_PUNCTUATION = /[.,;:!?)\]}'’]+$/u
const STOPS = '.!?。！？…؟।'

export function tokenize(text: string): readonly Token[] {
  const pattern = ADDRESS_CHARACTER.test(text) ? TOKEN : TOKEN_WITHOUT_ADDRESS
  const tokens: Token[] = []
  let [startsSentence, isSpaced] = [true, false]
  const push = (kind: TokenKind, raw: string, key = raw): void => {
    tokens.push({ kind, raw, key, startsSentence, isSpaced })
    isSpaced = false
    startsSentence = kind === 'stop' || (kind === 'symbol' && (startsSentence || raw === ':'))
  }
  for (let position = 0; position < text.length;) {
    if (text.charCodeAt(position) === SPACE) {
      position += 1
      isSpaced = true
      continue
    }
    if (WHITE_SPACE.test(text.charAt(position))) {
      push('symbol', text.charAt(position))
      position += 1
      continue
    }
    const end = endOfPlainWord(text, position)
    if (end > position) {
      const word = text.slice(position, end)
      push('word', word, word.toLowerCase())
      position = end
      continue
    }
    pattern.lastIndex = position
    const match = pattern.exec(text)
    if (match === null) break
    position = match.index + match[0].length
    pushMatch(match, text, push)
  }
  return tokens
}

const SPACE = 0x20
/** Line breaks, tabs and special spaces are significant. */
const WHITE_SPACE = /\s/u

/** Returns the end of a space-delimited ASCII word, or 0 for other text and for `getName`. Faster than the pattern. */
function endOfPlainWord(text: string, start: number): number {
  if (start > 0 && text.charCodeAt(start - 1) !== SPACE) return 0
  let end = start
  let capitals = 0
  for (; end < text.length; end += 1) {
    const code = text.charCodeAt(end)
    if (code >= 0x41 && code <= 0x5a) capitals += 1
    else if (code < 0x61 || code > 0x7a) break
  }
  const isBounded = end === text.length || text.charCodeAt(end) === SPACE
  const first = text.charCodeAt(start)
  const isOrdinary = capitals === 0 || capitals === end - start || (capitals === 1 && first <= 0x5a)
  return isBounded && isOrdinary ? end : 0
}

function tokenPattern(address: string): RegExp {
  const exact = `${FENCE}|${CODE}|${QUOTED}|${SINGLE_QUOTED}`
  return new RegExp(`(${exact})|(${address})|(${IDENTIFIER})|(${NUMBER})|(${WORD})|(\\S)`, 'gu')
}

function pushMatch(match: RegExpExecArray, text: string, push: Push): void {
  const [, quoted, address, identifier, number, word, character] = match
  if (quoted !== undefined) push('exact', quoted, normalizeQuotes(quoted))
  else if (address !== undefined) pushAddress(address, push)
  else if (identifier !== undefined) push('exact', identifier)
  else if (number !== undefined) push('number', number)
  else if (word !== undefined) push('word', word, word.replaceAll('’', "'").toLowerCase())
  else if (character !== undefined && isDetachedEnd(text, match.index)) push('symbol', character)
  else if (character !== undefined) pushCharacter(character, text[match.index + character.length], push)
}

/** A separate mark at the end may be the subject of the text: `what is the meaning of !` */
function isDetachedEnd(text: string, index: number): boolean {
  return index === text.length - 1 && /^\s[!.]$/.test(text.slice(-2))
}

type Push = (kind: TokenKind, raw: string, key?: string) => void

function pushAddress(address: string, push: Push): void {
  const trailing = TRAILING_PUNCTUATION.exec(address)?.[0] ?? ''
  const body = address.slice(0, address.length - trailing.length)
  if (body !== '') push('exact', body)
  for (const character of trailing) pushCharacter(character, undefined, push)
}

/** An ASCII mark before a letter or digit, as in .NET, does not end a sentence. */
function pushCharacter(character: string, next: string | undefined, push: Push): void {
  const endsSentence =
    STOPS.includes(character) && (next === undefined || !/[\p{L}\p{N}]/u.test(next) || character.charCodeAt(0) > 0x7f)
  if (endsSentence) push('stop', character)
  else push('symbol', character, symbolKey(character, next))
}

/** A comma in data (a,b) differs from a comma before a space. */
function symbolKey(character: string, next: string | undefined): string {
  if (character === '’') return "'"
  return character === ',' && next !== undefined && !/\s/u.test(next) ? 'a,b' : character
}

function normalizeQuotes(text: string): string {
  // In code, 'a' and "a" differ.
  if (text.startsWith('`') || text.startsWith("'")) return text
  return `"${text.slice(1, -1)}"`
}

/** Returns true for a word without a capital letter that could mark a name. */
export function isPlainWord(token: Token): boolean {
  if (token.kind !== 'word') return false
  if (token.raw === token.key) return true
  const rest = token.startsSentence ? token.raw.slice(1) : token.raw
  return rest === rest.toLowerCase()
}

export function toWordTokens(token: Token, keys: readonly string[]): readonly Token[] {
  if (keys.length === 1 && keys[0] === token.key) return [token]
  return keys.map((key, index) => ({
    kind: 'word',
    raw: key,
    key,
    startsSentence: token.startsSentence && index === 0,
    isSpaced: true,
  }))
}

/** Excludes `her`, because `update ehr records` is not `update her records`. */
const COMMON_WORDS =
  `the and was were did does how what when where which who why that this these those there their they you your are for can
  could should would will had have with about because from been than then also after before between during through while
  without some say said new tell please know want need like help explain show give make`.split(/\s+/)

/** Excluded results of swaps: other words, names, abbreviations, and results with two possible originals. */
const AMBIGUOUS: ReadonlySet<string> = new Set('hwo aws dose odes weer form eben bene sadi three siad asid'.split(' '))

const CORRECTIONS: ReadonlyMap<string, string> = new Map([
  ...COMMON_WORDS.flatMap((word) =>
    letterSwaps(word)
      .filter((swapped) => !AMBIGUOUS.has(swapped))
      .map((swapped): [string, string] => [swapped, word]),
  ),
  ['fo', 'of'],
  ['si', 'is'],
])

/** Most of these swaps are ambiguous in lower case, but not if a capital letter was moved. */
const MOVED_CAPITAL_CORRECTIONS: ReadonlyMap<string, string> = new Map([
  ['oD', 'do'],
  ['fI', 'if'],
  ['nI', 'in'],
  ['hWo', 'who'],
  ['hWy', 'why'],
  ['rAe', 'are'],
])
const HAS_MOVED_CAPITAL = /^[a-z][A-Z][a-z]*$/

function letterSwaps(word: string): readonly string[] {
  return Array.from(
    { length: word.length - 1 },
    (_, index) => word.slice(0, index) + word.charAt(index + 1) + word.charAt(index) + word.slice(index + 2),
  ).filter((swapped) => swapped !== word)
}

/** No article or verb follows these words. There, the letters are the subject: `why is teh a meme` */
const BEFORE_NOUNS: ReadonlySet<string> = new Set('the your their'.split(' '))
const NOT_NOUNS: ReadonlySet<string> = new Set('a an the is are was were of in so'.split(' '))

export function correctSwappedLetters(token: Token, index: number, tokens: readonly Token[]): Token {
  const word = commonWordOf(token)
  const next = tokens[index + 1]
  const isSubject =
    next?.kind === 'stop' ||
    next === undefined ||
    (word !== undefined && BEFORE_NOUNS.has(word) && NOT_NOUNS.has(next.key))
  return word === undefined || (isSubject && index > 0) ? token : { ...token, kind: 'word', raw: word, key: word }
}

function commonWordOf(token: Token): string | undefined {
  if (token.kind === 'exact') {
    if (!token.startsSentence || !HAS_MOVED_CAPITAL.test(token.raw)) return undefined
    return MOVED_CAPITAL_CORRECTIONS.get(token.raw) ?? CORRECTIONS.get(token.raw.toLowerCase())
  }
  if (token.kind !== 'word') return undefined
  const hasUsualCapitals =
    token.raw === token.key || (token.startsSentence && token.raw.slice(1) === token.key.slice(1))
  return hasUsualCapitals ? CORRECTIONS.get(token.key) : undefined
}
