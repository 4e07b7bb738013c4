import { type FailureKind, GatewayError, type UpstreamErrorDetails } from '../core/errors.ts'
import { nameSet } from './fields.ts'
import { asObject, asString, isJsonObject, type Json, type JsonObject } from '../core/json.ts'

const CALLER_ERROR_STATUSES: ReadonlySet<number> = new Set([400, 404, 409, 413, 422])

function kindOfStatus(status: number): FailureKind {
  if (CALLER_ERROR_STATUSES.has(status)) return 'upstream-rejected'
  if (status === 429) return 'upstream-rate-limited'
  if (status === 503 || status === 529) return 'overloaded'
  if (status === 408 || status === 504) return 'upstream-timeout'
  return 'upstream'
}

const MESSAGES: Partial<Record<FailureKind, string>> = {
  'upstream-rate-limited': 'The model provider rejected the request because of its rate limit. Retry later.',
  'upstream-timeout': 'The model provider took too long to answer. Retry later, or request a shorter answer.',
  overloaded: 'The model provider is overloaded. Retry later.',
}

function messageOfStatus(kind: FailureKind, status: number): string {
  if (status === 401 || status === 403) {
    return "The model provider rejected the gateway's credentials. Notify the operator of the gateway."
  }
  return MESSAGES[kind] ?? `The model provider failed with status ${status}. Retry later.`
}

/**
 * Reads an error response in any format. Keeps the message if the caller's request caused the error. Reports other
 * failures, such as rejected credentials, without details.
 */
export function readFailure(status: number, body: JsonObject | undefined): GatewayError {
  const kind = kindOfStatus(status)
  if (kind !== 'upstream-rejected') return new GatewayError(kind, messageOfStatus(kind, status))
  const error = errorOf(body)
  const param = textOf(error['param'])
  return new GatewayError(
    kind,
    textOf(error['message']) ?? `The model provider rejected the request (status ${status}).`,
    { ...(param === undefined ? {} : { param }), upstream: refusalOf(error, status) },
  )
}

function errorOf(body: JsonObject | undefined): JsonObject {
  if (body === undefined) return {}
  const { error, detail } = body
  if (typeof error === 'string') return { message: error }
  const inner = asObject(error)
  if (inner !== undefined) return inner
  if (typeof body['message'] === 'string' || detail === undefined) return body
  return { message: typeof detail === 'string' ? detail : (JSON.stringify(upstreamDetails(detail)) ?? '') }
}

function refusalOf(error: JsonObject, status: number): UpstreamErrorDetails {
  const type = textOf(error['type'])
  const code = textOf(error['code'])
  const details = upstreamDetails(error['details'])
  return {
    status,
    ...(type === undefined || type === 'error' ? {} : { type }),
    ...(code === undefined ? {} : { code }),
    ...(details === undefined ? {} : { details }),
  }
}

/** Ignores numeric codes, because they only repeat the status. */
function textOf(value: Json | undefined): string | undefined {
  return typeof value === 'string' && value !== '' ? upstreamText(value) : undefined
}

const STREAM_FAILED = 'The model provider ended its answer with an error. Retry later.'

/** A server that validates the request after it starts the stream sends the status as `code`. */
export function streamFailure(event: JsonObject): GatewayError {
  const code = asObject(event['error'])?.['code']
  if (typeof code === 'number' && code >= 400 && code < 600) return readFailure(code, event)
  return new GatewayError('upstream', STREAM_FAILED)
}

const NAMED_KINDS: ReadonlyMap<string | undefined, FailureKind> = new Map([
  ['overloaded_error', 'overloaded'],
  ['rate_limit_error', 'upstream-rate-limited'],
  ['timeout_error', 'upstream-timeout'],
  ['rate_limit_exceeded', 'upstream-rate-limited'],
])

function namedFailure(name: string | undefined): GatewayError {
  const kind = NAMED_KINDS.get(name) ?? 'upstream'
  return new GatewayError(kind, MESSAGES[kind] ?? STREAM_FAILED)
}

export function messageFailure(event: JsonObject): GatewayError {
  return namedFailure(asString(asObject(event['error'])?.['type']))
}

export function responseFailure(holder: JsonObject): GatewayError {
  return namedFailure(asString((asObject(holder['error']) ?? holder)['code']))
}

const REMOVED = '[removed]'
const MAX_TEXT_LENGTH = 2000
const MAX_DETAILS_LENGTH = 4096

/**
 * Removes private data from upstream text, in linear time. Upstreams may repeat credentials, addresses and host names
 * in forms that no list of patterns covers. Therefore, only atoms with a safe shape are kept. Other atoms become
 * `[removed]`.
 *
 * An atom is a run of characters without spaces, quotes and brackets.
 */
export function upstreamText(text: string): string {
  const state: RedactionState = { hidesNext: 'nothing', label: 'nothing', word: '' }
  return truncateAtSpace(text)
    .replace(INVISIBLE, '')
    .split(/(\s+)/)
    .map((chunk) => (isAddress(chunk) ? REMOVED : cleanChunk(chunk, state)))
    .join('')
}

/** Removes private data from keys and values of error details. Omits details of more than 4,096 characters. */
export function upstreamDetails(details: Json | undefined): Json | undefined {
  if (details === undefined || details === null) return undefined
  try {
    return JSON.stringify(details).length > MAX_DETAILS_LENGTH ? undefined : cleanJson(details)
  } catch {
    // The value is nested too deeply to be serialized.
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

/** How a word affects the next atom. `names` hides the atom unless it is a plain word. */
type Hides = 'nothing' | 'names' | 'anything'

interface RedactionState {
  hidesNext: Hides
  /** The effect on the value after a colon or equals sign, as in `password: …`. */
  label: Hides
  word: string
}

function cleanChunk(chunk: string, state: RedactionState): string {
  return chunk
    .split(SEPARATORS)
    .map((atom) => {
      const isWord = /[\p{L}\p{N}]/u.test(atom)
      const isHidden = isWord && (hides(state.hidesNext, atom) || !hasSafeShape(atom))
      if (isWord) follow(state, atom.replaceAll(/[^\w-]/g, '').toLowerCase())
      if (/[:=]/.test(atom) && state.label !== 'nothing') state.hidesNext = state.label
      return isHidden ? REMOVED : atom
    })
    .join('')
}

function hides(mode: Hides, atom: string): boolean {
  return mode === 'anything' || (mode === 'names' && !PLAIN_WORD.test(atom))
}

function follow(state: RedactionState, word: string): void {
  const isConnection = word === 'to' && state.word.startsWith('connect')
  const isFollowedByHost = FOLLOWED_BY_HOST.has(word) || isConnection
  state.hidesNext = FOLLOWED_BY_SECRET.has(word) ? 'anything' : isFollowedByHost ? 'names' : 'nothing'
  state.label = PRIVATE_FIELDS.has(word) ? 'anything' : LABELS_OF_NAMES.has(word) ? 'names' : 'nothing'
  state.word = word
}

/** Returns true for URLs, addresses with credentials, paths with backslashes, and percent-encoded text. */
function isAddress(chunk: string): boolean {
  return /\/\/|@|\\|%[0-9a-f]{2}/i.test(chunk) && /[\p{L}\p{N}]/u.test(chunk)
}

/** Truncates the text at a space, because a fragment of an address may look safe. */
function truncateAtSpace(text: string): string {
  if (text.length <= MAX_TEXT_LENGTH) return text
  const cut = text.slice(0, MAX_TEXT_LENGTH)
  return `${cut.slice(0, cut.lastIndexOf(' ') + 1)}…`
}

const PRIVATE_FIELDS = nameSet(
  'password passwd pwd passphrase secret token apikey api_key api-key access_key access_token secret_key private_key ' +
    'authorization auth bearer credential credentials cookie session dsn connection_string host hostname server ' +
    'address addr ip port user username dbname database endpoint url uri base_url baseurl node pod cluster upstream',
)
const LABELS_OF_NAMES = nameSet('key keys')
const FOLLOWED_BY_SECRET = nameSet('bearer getaddrinfo enotfound eai_again econnrefused lookup')
const FOLLOWED_BY_HOST = nameSet('host hostname server node pod upstream backend cluster database user')

const PLAIN_WORD = /^(?:[A-Za-z]+|\d+)[.:]?$/
const INVISIBLE = /[\p{Cf}\p{Co}\p{Cn}]|(?![\t\n\r])\p{Cc}/gu
const SEPARATORS =
  /([\s"'`“”‘’«»()[\]{}<>,;=|!?…—–·•→、，；：！？（）「」『』【】《》]+|(?<![A-Za-z0-9])[。．｡]|[。．｡](?![A-Za-z0-9]))/u

/** Returns true for words, numbers, model names, media types and field paths. */
function hasSafeShape(atom: string): boolean {
  const [start, end] = wordRange(atom)
  const core = atom.slice(start, end)
  if (!LEADING_MARKS.test(atom.slice(0, start)) || !TRAILING_MARKS.test(atom.slice(end))) return false
  if (core.length > MAX_ATOM_LENGTH || !ALLOWED.test(core)) return false
  if (KNOWN_ID.test(core)) return true
  if (SECRET_PREFIX.test(core) || DASHED_ADDRESS.test(core)) return false
  if (atom[start - 1] === '.') return isFieldPath(core) || /^\d{1,6}$/.test(core)
  const sides = core.split('/')
  if (sides.length > 2 || (sides.length === 2 && API_VERSION.test(sides[1] ?? ''))) return false
  return sides.every(isName)
}

/**
 * Dots are allowed in one version number (`gpt-4.1-mini`, `3.5`) and in paths of known fields (`messages.0.content`).
 */
function isName(name: string): boolean {
  if (name.includes('.')) {
    if (isFieldPath(name) || ABBREVIATIONS.has(name.toLowerCase())) return true
    if (!ONE_VERSION.test(name)) return false
  }
  const pieces = name.split(/[-_+.]/).flatMap((piece) => piece.split(NOT_ASCII))
  if (pieces.length > 1 && pieces.some((piece) => INFRASTRUCTURE.has(piece.toLowerCase()))) return false
  if (pieces.filter((piece) => isMixed(piece)).length > MAX_MIXED_PIECES) return false
  return name.toLowerCase() !== 'localhost' && pieces.every(isPiece)
}

/** Accepts words, numbers, and short mixes such as `4o`, `8x22b` and `qwen2`. The random part of a key is longer. */
function isPiece(piece: string): boolean {
  if (/^[A-Za-z]*$/.test(piece)) return piece.length <= MAX_LETTERS
  if (/^\d+$/.test(piece)) return piece.length <= MAX_DIGITS
  return piece.length <= MAX_MIXED_LENGTH
}

function isMixed(piece: string): boolean {
  return /\d/.test(piece) && /[A-Za-z]/.test(piece)
}

function isFieldPath(path: string): boolean {
  const names = path.split('.')
  return FIELDS.has(names[0] ?? '') && names.every((name) => FIELDS.has(name) || /^\d{1,6}$/.test(name))
}

function wordRange(atom: string): readonly [number, number] {
  let start = 0
  let end = atom.length
  while (start < end && !isWordUnit(atom, start)) start += 1
  while (end > start && !isWordUnit(atom, end - 1)) end -= 1
  return [start, end]
}

function isWordUnit(text: string, at: number): boolean {
  const unit = text.charCodeAt(at)
  return unit > 0x7f || unit === 0x5f || /[A-Za-z0-9]/.test(text.charAt(at))
}

const MAX_ATOM_LENGTH = 200
const MAX_LETTERS = 30
const MAX_DIGITS = 15
const MAX_MIXED_LENGTH = 8
const MAX_MIXED_PIECES = 3

const LEADING_MARKS = /^[$#*+.&~^-]*$/
const TRAILING_MARKS = /^(?:[.%*+&~^$-]|:(?!:))*$/
const ALLOWED = /^[A-Za-z0-9\p{L}\p{M}_+./-]+$/u
const NOT_ASCII = /[\u{80}-\u{10ffff}]+/u
const ONE_VERSION = /^[A-Za-z0-9_+-]*\d\.\d[A-Za-z0-9_+-]*$/
const API_VERSION = /^v\d+$/i
const DASHED_ADDRESS = /\d{1,3}(?:-\d{1,3}){3}(?!\d)/
const SECRET_PREFIX =
  /^(?:(?:sk|pk|rk|sess|key|ghp|gho|hf|gsk|xai|pplx|xox[a-z])[-_].{4,}|AIza.{8,}|AKIA.{8,}|eyJ.{8,})/i
/** Ids that callers received in earlier answers. */
const KNOWN_ID = /^(?:call|toolu|srvtoolu|fc|msg|resp|rs|item|chatcmpl|file|batch|msgbatch)_[A-Za-z0-9]{1,64}$/
const ABBREVIATIONS: ReadonlySet<string> = new Set(['e.g', 'i.e', 'a.k.a', 'vs', 'u.s'])

const INFRASTRUCTURE = nameSet(
  'localhost db dbs database postgres postgresql pg mysql mariadb redis mongo mongodb kafka rabbitmq vllm primary ' +
    'replica prod production staging internal intranet corp lan svc cluster node pod host proxy vpc consul vault etcd ' +
    'k8s kube nginx haproxy envoy traefik srv backend ip',
)

const FIELDS = nameSet(
  'messages message content text type role name id input output system tools tool tool_choice tool_calls tool_call ' +
    'tool_call_id tool_use tool_use_id tool_result function functions function_call arguments parameters properties ' +
    'required items enum schema json_schema strict input_schema output_format response_format model models max_tokens ' +
    'max_completion_tokens max_output_tokens temperature top_p top_k stop stop_sequences stream stream_options ' +
    'include_usage thinking budget_tokens reasoning reasoning_effort effort summary metadata user_id n logprobs ' +
    'top_logprobs seed image image_url document source media_type data url file file_id title context citations ' +
    'cache_control ttl cache body query path header headers instructions additionalProperties anyOf oneOf allOf ' +
    'presence_penalty frequency_penalty logit_bias service_tier parallel_tool_calls prediction modalities audio format ' +
    'encoding_format dimensions custom_id params requests redacted_thinking signature partial',
)
