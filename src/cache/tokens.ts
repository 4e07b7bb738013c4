/**
 * `word`: letters. `number`: digits with their points and commas. `exact`: what must agree to the letter, such as
 * quotations, code, addresses, identifiers. `symbol`: one sign. `stop`: the end of a sentence.
 */
export type TokenKind = 'word' | 'number' | 'exact' | 'symbol' | 'stop'

export interface Token {
  readonly kind: TokenKind
  /** As written. */
  readonly raw: string
  /** What is compared: words in lower case. */
  readonly key: string
  /** True where a capital letter says nothing, because a sentence begins. */
  readonly opens: boolean
}

const FENCE = '```[\\s\\S]*?(?:```|$)'
const CODE = '`[^`]*`'
const QUOTED = '"[^"]*"|‘[^‘’]*’(?!\\p{L})|«[^«»]*»|„[^„“”]*[“”]|“[^“”]*”|「[^「」]*」|『[^『』]*』|《[^《》]*》'
const SINGLE_QUOTED = "(?<![\\p{L}\\p{N}])'[^']+'(?![\\p{L}\\p{N}])"
/** Anything unbroken that holds a sign which only addresses, paths and program text have. */
const ADDRESS = '[^\\s"`]{0,64}?(?:://|@|\\\\|\\w/|/\\w|_)[^\\s"`]*'
/** Letters and digits mixed (GPT4o, x2), capitals within (getName), points within (obj.method, e.g). Digits first is a measure: 5kg. */
const IDENTIFIER =
  '\\p{L}[\\p{L}\\p{M}]*(?:\\p{N}[\\p{L}\\p{N}]*|\\.[\\p{L}\\p{N}]+)+|\\p{L}*\\p{Ll}\\p{Lu}[\\p{L}\\p{N}]*|\\p{Lu}{2,}\\p{Ll}[\\p{L}\\p{N}]*'
const NUMBER = '\\p{N}+(?:[.,:]\\p{N}+)*'
const WORD = "\\p{L}[\\p{L}\\p{M}]*(?:['’]\\p{L}+)*"

const TOKEN = tokenPattern(ADDRESS)
/** For texts that hold no sign of an address: looking for one at every place costs most. */
const TOKEN_WITHOUT_ADDRESS = tokenPattern('(?!)')
const ADDRESS_SIGN = /[/\\@_]/
const CLOSING = /[.,;:!?)\]}'’]+$/u
const STOPS = '.!?。！？…؟।'

/** Splits a text into what a reader compares one by one. Linear in the length of the text. */
export function tokenise(text: string): readonly Token[] {
  const tokens: Token[] = []
  let opens = true
  const push = (kind: TokenKind, raw: string, key = raw): void => {
    tokens.push({ kind, raw, key, opens })
    opens = kind === 'stop' || (kind === 'symbol' && (opens || raw === ':'))
  }
  for (const match of text.matchAll(ADDRESS_SIGN.test(text) ? TOKEN : TOKEN_WITHOUT_ADDRESS)) {
    const [, quoted, address, identifier, number, word, sign] = match
    if (quoted !== undefined) push('exact', quoted, unquote(quoted))
    else if (address !== undefined) pushAddress(address, push)
    else if (identifier !== undefined) push('exact', identifier)
    else if (number !== undefined) push('number', number)
    else if (word !== undefined) push('word', word, word.replaceAll('’', "'").toLowerCase())
    else if (sign !== undefined) pushSign(sign, text[match.index + sign.length], push)
  }
  return tokens
}

function tokenPattern(address: string): RegExp {
  const exact = `${FENCE}|${CODE}|${QUOTED}|${SINGLE_QUOTED}`
  return new RegExp(`(${exact})|(${address})|(${IDENTIFIER})|(${NUMBER})|(${WORD})|(\\S)`, 'gu')
}

type Push = (kind: TokenKind, raw: string, key?: string) => void

/** A sentence's own punctuation behind an address is not part of it. */
function pushAddress(address: string, push: Push): void {
  const closing = CLOSING.exec(address)?.[0] ?? ''
  const body = address.slice(0, address.length - closing.length)
  if (body !== '') push('exact', body)
  for (const sign of closing) pushSign(sign, undefined, push)
}

/** A point before a letter begins a name (.NET); elsewhere it ends a sentence. */
function pushSign(sign: string, next: string | undefined, push: Push): void {
  const ends = STOPS.includes(sign) && (next === undefined || !/[\p{L}\p{N}]/u.test(next) || sign.charCodeAt(0) > 0x7f)
  if (ends) push('stop', sign, stopKey(sign))
  else push('symbol', sign, symbolKey(sign, next))
}

/** A comma before a blank is punctuation of prose; one between letters (a,b) is data. */
function symbolKey(sign: string, next: string | undefined): string {
  if (sign === '’') return "'"
  return sign === ',' && next !== undefined && !/\s/u.test(next) ? 'a,b' : sign
}

/** A question stays a question; every other end of a sentence is the same. */
function stopKey(sign: string): string {
  return '?？؟'.includes(sign) ? '?' : '.'
}

/** The kind of quotation mark does not matter, what stands between them does; code keeps its marks. */
function unquote(text: string): string {
  return text.startsWith('`') ? text : `"${text.slice(1, -1)}"`
}

/** A word that cannot be a name by its capital letter. */
export function isPlainWord(token: Token): boolean {
  if (token.kind !== 'word') return false
  const rest = token.opens ? token.raw.slice(1) : token.raw
  return rest === rest.toLowerCase()
}

/** The token as other words in its place; itself when there is nothing to change. */
export function asWords(token: Token, keys: readonly string[]): readonly Token[] {
  if (keys.length === 1 && keys[0] === token.key) return [token]
  return keys.map((key, index) => ({ kind: 'word', raw: key, key, opens: token.opens && index === 0 }))
}
