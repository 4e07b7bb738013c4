import { isJsonObject, type Json } from '../core/json.ts'
import { hasSafeShape } from './safe-shape.ts'

const REMOVED = '[removed]'
const MAX_TEXT = 2000
const MAX_DETAILS = 4096

/**
 * Makes an upstream's words safe for callers. Upstreams repeat credentials, addresses and host names of the operator's
 * network in forms that no list of patterns covers. So only atoms with a safe shape pass, and each other atom becomes
 * `[removed]`. The time is linear in the length of the text.
 */
export function upstreamText(text: string): string {
  const walk: Walk = { hidesNext: 'nothing', label: 'nothing', word: '' }
  return shortened(text)
    .replace(INVISIBLE, '')
    .split(/(\s+)/)
    .map((chunk) => (isAddress(chunk) ? REMOVED : cleanChunk(chunk, walk)))
    .join('')
}

/** Cleans the keys and values of an upstream's error details. Details beyond 4,096 characters are left out. */
export function upstreamDetails(details: Json | undefined): Json | undefined {
  if (details === undefined || details === null) return undefined
  try {
    return JSON.stringify(details).length > MAX_DETAILS ? undefined : cleanJson(details)
  } catch {
    // Nested too deep to be written.
    return undefined
  }
}

function cleanJson(value: Json): Json {
  if (typeof value === 'string') return upstreamText(value)
  if (Array.isArray(value)) return value.map(cleanJson)
  if (!isJsonObject(value)) return value
  const fields = Object.entries(value).map(([name, field = null]): [string, Json] => {
    const isPrivate = PRIVATE_FIELDS.has(name.toLowerCase()) && field !== null
    return [upstreamText(name), isPrivate ? REMOVED : cleanJson(field)]
  })
  return Object.fromEntries(fields)
}

/** What the words so far say of the next atom. `names`: every atom that is not a plain word is hidden. */
type Hides = 'nothing' | 'names' | 'anything'

interface Walk {
  hidesNext: Hides
  /** What the last atom hides when a colon or an equals sign follows it, as in `password: …`. */
  label: Hides
  /** The last word in lower case. */
  word: string
}

function cleanChunk(chunk: string, walk: Walk): string {
  return chunk
    .split(SEPARATORS)
    .map((atom) => {
      const isWord = /[\p{L}\p{N}]/u.test(atom)
      const isHidden = isWord && (hides(walk.hidesNext, atom) || !hasSafeShape(atom))
      if (isWord) follow(walk, atom.replaceAll(/[^\w-]/g, '').toLowerCase())
      if (/[:=]/.test(atom) && walk.label !== 'nothing') walk.hidesNext = walk.label
      return isHidden ? REMOVED : atom
    })
    .join('')
}

function hides(mode: Hides, atom: string): boolean {
  return mode === 'anything' || (mode === 'names' && !PLAIN_WORD.test(atom))
}

function follow(walk: Walk, word: string): void {
  const isConnection = word === 'to' && walk.word.startsWith('connect')
  const isFollowedByHost = FOLLOWED_BY_HOST.has(word) || isConnection
  walk.hidesNext = FOLLOWED_BY_SECRET.has(word) ? 'anything' : isFollowedByHost ? 'names' : 'nothing'
  walk.label = PRIVATE_FIELDS.has(word) ? 'anything' : LABELS_OF_NAMES.has(word) ? 'names' : 'nothing'
  walk.word = word
}

/** URLs, addresses with credentials, paths with backslashes and percent-encoded text are hidden as a whole. */
function isAddress(chunk: string): boolean {
  return /\/\/|@|\\|%[0-9a-f]{2}/i.test(chunk) && /[\p{L}\p{N}]/u.test(chunk)
}

/** Cuts at a space where one is near: half an address has another shape than the whole. */
function shortened(text: string): string {
  if (text.length <= MAX_TEXT) return text
  const cut = text.slice(0, MAX_TEXT)
  return `${cut.slice(0, cut.lastIndexOf(' ') + 1)}…`
}

const words = (text: string): ReadonlySet<string> => new Set(text.split(' '))

const PRIVATE_FIELDS = words(
  'password passwd pwd passphrase secret token apikey api_key api-key access_key access_token secret_key private_key ' +
    'authorization auth bearer credential credentials cookie session dsn connection_string host hostname server ' +
    'address addr ip port user username dbname database endpoint url uri base_url baseurl node pod cluster upstream',
)
const LABELS_OF_NAMES = words('key keys')
const FOLLOWED_BY_SECRET = words('bearer getaddrinfo enotfound eai_again econnrefused lookup')
const FOLLOWED_BY_HOST = words('host hostname server node pod upstream backend cluster database user')

const PLAIN_WORD = /^(?:[A-Za-z]+|\d+)[.:]?$/
const INVISIBLE = /[\p{Cf}\p{Co}\p{Cn}]|(?![\t\n\r])\p{Cc}/gu
const SEPARATORS =
  /([\s"'`“”‘’«»()[\]{}<>,;=|!?…—–·•→、，；：！？（）「」『』【】《》]+|(?<![A-Za-z0-9])[。．｡]|[。．｡](?![A-Za-z0-9]))/u
