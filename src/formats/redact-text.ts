import { isJsonObject, type Json } from '../core/json.ts'
import {
  isAccountField,
  isAccountName,
  isAccountWord,
  isCapitalized,
  isNameIntroduction,
  isQuantity,
  isQuantityFiller,
} from './account-names.ts'
import { nameSet } from './parse-body.ts'
import { hasSafeShape, isLongNumber, isSafeQuantity } from './safe-shape.ts'

const REMOVED = '[removed]'
const MAX_TEXT_LENGTH = 2000
const MAX_DETAILS_LENGTH = 4096

/**
 * Removes all words without a safe shape, because no list of patterns covers all forms of credentials and addresses that
 * upstreams repeat.
 *
 * @param field The name of the field that contains the text. A long number is kept only in a field such as `limit`.
 */
export function redactText(text: string, field = ''): string {
  const state: RedactionState = {
    nextRule: 'none',
    labelRule: 'none',
    previousWord: '',
    isQuantity: isQuantity(field),
    quotedWords: 0,
    followsName: false,
  }
  const atoms = truncateAtSpace(text)
    .replace(INVISIBLE_CHARACTERS, '')
    .split(/(\s+)/)
    .flatMap((chunk) => (isAddress(chunk) ? [REMOVED] : chunk.split(SEPARATORS)))
    .filter((atom) => atom !== '')
  return atoms.map((atom, at) => redactAtom(atoms, atom, at, state)).join('')
}

export function redactDetails(details: Json | undefined): Json | undefined {
  if (details === undefined || details === null) return undefined
  try {
    return JSON.stringify(details).length > MAX_DETAILS_LENGTH ? undefined : redactJson(details)
  } catch {
    // The value is nested too deeply to be serialized.
    return undefined
  }
}

function redactJson(value: Json, field = ''): Json {
  if (typeof value === 'string') return redactText(value, field)
  if (typeof value === 'number') return isLongNumber(String(value)) && !isQuantity(field) ? REMOVED : value
  if (Array.isArray(value)) return value.map((item: Json) => redactJson(item, field))
  if (!isJsonObject(value)) return value
  const fields = Object.entries(value).map(([name, inner = null]): [string, Json] => {
    const isPrivate = (PRIVATE_FIELDS.has(name.toLowerCase()) || isAccountField(name)) && inner !== null
    return [redactText(name), isPrivate ? REMOVED : redactJson(inner, name)]
  })
  return Object.fromEntries(fields)
}

/**
 * The atoms (text between separators) that a rule hides: none, those that are not plain words or numbers, names of
 * accounts, or all. Rule `label` is `account` after a colon or an equals sign.
 */
type RedactionRule = 'none' | 'names' | 'account' | 'label' | 'all'

interface RedactionState {
  nextRule: RedactionRule
  /** The rule for the value after a colon or equals sign, as in `password: …`. */
  labelRule: RedactionRule
  previousWord: string
  /** True if a long number is a limit, a size or a time. */
  isQuantity: boolean
  /** Maximum number of further words of a name in quotation marks. */
  quotedWords: number
  /** True after a removed name of an account, which may have several words. */
  followsName: boolean
}

function redactAtom(atoms: readonly string[], atom: string, at: number, state: RedactionState): string {
  if (atom === REMOVED) return atom
  if (!/[\p{L}\p{N}]/u.test(atom)) {
    applySeparator(atom, atoms[at - 1] ?? '', state)
    return atom
  }
  const isName = isNameOfAccount(atoms, atom, at, state)
  const isHidden = isName || isHiddenBy(state.nextRule, atom) || !isSafeAtom(atoms, atom, at, state)
  updateRules(state, atom)
  state.quotedWords = Math.max(0, state.quotedWords - 1)
  state.followsName = isName && !/[.:]$/.test(atom)
  return isHidden ? REMOVED : atom
}

function isSafeAtom(atoms: readonly string[], atom: string, at: number, state: RedactionState): boolean {
  if (!isLongNumber(atom)) return hasSafeShape(atom)
  return isSafeQuantity(atom) && (state.isQuantity || isQuantity(nextWord(atoms, at) ?? ''))
}

function isNameOfAccount(atoms: readonly string[], atom: string, at: number, state: RedactionState): boolean {
  if (state.quotedWords > 0 || (state.followsName && isCapitalized(atom))) return true
  const isLabeled = state.nextRule === 'label'
  return (isLabeled || state.nextRule === 'account') && isAccountName(atom, isLabeled, nextWord(atoms, at))
}

/** Returns undefined at the end of a phrase. Each separator is read once, so the time is linear. */
function nextWord(atoms: readonly string[], at: number): string | undefined {
  for (let index = at + 1; index < atoms.length; index += 1) {
    const atom = atoms[index] ?? ''
    if (/[\p{L}\p{N}]/u.test(atom)) return atom.toLowerCase()
    if (PHRASE_END.test(atom)) return undefined
  }
  return undefined
}

function applySeparator(separator: string, previous: string, state: RedactionState): void {
  if (/[:=]/.test(separator) && state.labelRule !== 'none') state.nextRule = state.labelRule
  const isAccount = state.nextRule === 'account' || state.nextRule === 'label'
  const isOpeningQuote = QUOTE_AT_END.test(separator) && (separator.length > 1 || OPENING_CONTEXT.test(previous))
  if (isOpeningQuote && isAccount) state.quotedWords = MAX_QUOTED_WORDS
  else if (QUOTE.test(separator)) state.quotedWords = 0
  if (/\S/.test(separator)) state.followsName = false
  if (state.nextRule === 'account' && PHRASE_END.test(separator)) state.nextRule = 'none'
}

function isHiddenBy(rule: RedactionRule, atom: string): boolean {
  return rule === 'all' || (rule === 'names' && !PLAIN_WORD.test(atom))
}

function updateRules(state: RedactionState, atom: string): void {
  const word = atom.replaceAll(/[^\w-]/g, '').toLowerCase()
  const isConnection = word === 'to' && state.previousWord.startsWith('connect')
  const isNameGiven = word === 'is' && state.labelRule === 'label' && isNameIntroduction(state.previousWord)
  const isFollowedByName = FOLLOWED_BY_NAME.has(word) || isConnection || isNameGiven
  const isIntroduction = state.labelRule === 'label' && isNameIntroduction(word)
  const isAccount = isIntroduction || isAccountWord(word, state.previousWord)
  const isPhraseEnd = /[.:]$/.test(atom)
  state.nextRule = FOLLOWED_BY_PRIVATE.has(word)
    ? 'all'
    : isFollowedByName
      ? 'names'
      : isAccount && !isPhraseEnd
        ? 'account'
        : 'none'
  state.labelRule = PRIVATE_FIELDS.has(word) ? 'all' : NAME_LABELS.has(word) ? 'names' : isAccount ? 'label' : 'none'
  if (atom.endsWith(':') && state.labelRule !== 'none') state.nextRule = state.labelRule
  state.isQuantity = isQuantity(atom) || (state.isQuantity && isQuantityFiller(word))
  state.previousWord = word
}

function isAddress(chunk: string): boolean {
  return /\/\/|@|\\|%[0-9a-f]{2}/i.test(chunk) && /[\p{L}\p{N}]/u.test(chunk)
}

/** A fragment of an address may look safe. */
function truncateAtSpace(text: string): string {
  if (text.length <= MAX_TEXT_LENGTH) return text
  const prefix = text.slice(0, MAX_TEXT_LENGTH)
  return `${prefix.slice(0, prefix.lastIndexOf(' ') + 1)}…`
}

const PRIVATE_FIELDS = nameSet(
  'password passwd pwd passphrase secret token apikey api_key api-key access_key access_token secret_key private_key ' +
    'authorization auth bearer credential credentials cookie session dsn connection_string host hostname server ' +
    'address addr ip port user username dbname database endpoint url uri base_url baseurl node pod cluster upstream',
)
const NAME_LABELS = nameSet('key keys')
const FOLLOWED_BY_PRIVATE = nameSet('bearer getaddrinfo enotfound eai_again econnrefused lookup')
const FOLLOWED_BY_NAME = nameSet('host hostname server node pod upstream backend cluster database user')

const PLAIN_WORD = /^(?:[A-Za-z]+|\d+)[.:]?$/
const INVISIBLE_CHARACTERS = /[\p{Cf}\p{Co}\p{Cn}]|(?![\t\n\r])\p{Cc}/gu
const SEPARATORS =
  /([\s"'`“”‘’«»()[\]{}<>,;=|!?…—–·•→、，；：！？（）「」『』【】《》]+|(?<![A-Za-z0-9])[。．｡]|[。．｡](?![A-Za-z0-9]))/u
const QUOTE = /["'`“”‘’«»「」『』]/
const QUOTE_AT_END = /["'`“‘«「『]$/
const OPENING_CONTEXT = /[\s:=]$/
const PHRASE_END = /[,;!?|—–…)\]}>，、；！？）]/
const MAX_QUOTED_WORDS = 5
