import { type FailureDetails, type FailureKind, GatewayError, type UpstreamErrorDetails } from '../core/errors.ts'
import { asArray, asObject, asString, isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import { nameSet } from './parse-body.ts'

const CALLER_ERROR_STATUSES: ReadonlySet<number> = new Set([400, 404, 409, 413, 422])
const GATEWAY_ERROR_STATUSES: ReadonlySet<number> = new Set([401, 402, 403])

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
  if (GATEWAY_ERROR_STATUSES.has(status)) {
    return "The model provider did not accept the gateway's credentials, permissions or payment. Notify the operator of the gateway."
  }
  return MESSAGES[kind] ?? `The model provider failed with status ${status}. Retry later.`
}

/** Keeps the upstream's message only for statuses that blame the request. */
export function readFailure(status: number, body: JsonObject | undefined): GatewayError {
  const kind = kindOfStatus(status)
  const error = errorObject(body)
  if (kind !== 'upstream-rejected') {
    const details = { ...faultDetails(status), ...retryDelayOf(error) }
    return new GatewayError(kind, messageOfStatus(kind, status), details)
  }
  const param = redactedString(error['param'])
  const message = redactedString(error['message']) ?? `The model provider rejected the request (status ${status}).`
  return new GatewayError(kind, message, {
    ...(param !== undefined && { param }),
    upstream: rejectionDetails(error, status),
  })
}

/** A retry cannot succeed if the upstream rejects the gateway's credentials, payment or permissions. */
function faultDetails(status: number): FailureDetails {
  const advice = GATEWAY_ERROR_STATUSES.has(status) && { advice: { shouldRetry: 'false' as const } }
  return { ...(status < 500 && { isLocalFault: true }), ...advice }
}

const RETRY_INFO = 'type.googleapis.com/google.rpc.RetryInfo'
const RETRY_DELAY = /^(\d{1,9}(?:\.\d{1,9})?)s$/

/** Google sends the delay in the body instead of a header. */
function retryDelayOf({ details }: JsonObject): Pick<FailureDetails, 'retryAfterSeconds' | 'advice'> {
  const info = asArray(details)
    .map(asObject)
    .find((detail) => detail?.['@type'] === RETRY_INFO)
  const delay = RETRY_DELAY.exec(asString(info?.['retryDelay']) ?? '')?.[1]
  if (delay === undefined) return {}
  const retryAfterSeconds = Number(delay)
  const milliseconds = Math.ceil(retryAfterSeconds * 1000)
  return {
    retryAfterSeconds,
    advice: { retryAfter: String(Math.ceil(retryAfterSeconds)), retryAfterMs: String(milliseconds) },
  }
}

function errorObject(body: JsonObject = {}): JsonObject {
  const { error, detail } = body
  if (typeof error === 'string') return { message: error }
  const inner = asObject(error)
  if (inner !== undefined) return inner
  if (typeof body['message'] === 'string' || detail === undefined) return body
  return { message: typeof detail === 'string' ? detail : (JSON.stringify(redactDetails(detail)) ?? '') }
}

function rejectionDetails(error: JsonObject, status: number): UpstreamErrorDetails {
  const type = redactedString(error['type'])
  const code = redactedString(error['code'])
  // Groq's field for a tool call that cannot be parsed.
  const generation = redactedString(error['failed_generation'])
  const details = generation === undefined ? redactDetails(error['details']) : { failed_generation: generation }
  return {
    status,
    ...(type === undefined || type === 'error' ? {} : { type }),
    ...(code === undefined ? {} : { code }),
    ...(details === undefined ? {} : { details }),
  }
}

function redactedString(value: Json | undefined): string | undefined {
  return typeof value === 'string' && value !== '' ? redactText(value) : undefined
}

const NAMED_STATUSES: ReadonlyMap<string, number> = new Map([
  ['invalid_request_error', 400],
  ['context_length_exceeded', 400],
  ['invalid_prompt', 400],
  ['invalid_api_key', 401],
  ['request_too_large', 413],
  ['rate_limit_error', 429],
  ['rate_limit_exceeded', 429],
  ['insufficient_quota', 429],
  ['timeout_error', 504],
  ['overloaded_error', 529],
])

/** Codes of errors that the content of the request causes, such as `invalid_image_url` and `bio_policy`. */
const CONTENT_CODE = /(?:^|_)(?:image|policy)(?:_|$)/

function namedStatus(name = ''): number | undefined {
  return NAMED_STATUSES.get(name) ?? (CONTENT_CODE.test(name) ? 400 : undefined)
}

/** Some servers send the status as `code`. The code takes precedence over the type, which is less specific. */
export function answerFailure(body: JsonObject): GatewayError {
  const { code, type } = asObject(body['error']) ?? {}
  const isStatus = typeof code === 'number' && code >= 400 && code < 600
  const status = isStatus ? code : (namedStatus(asString(code)) ?? namedStatus(asString(type)))
  if (status !== undefined) return readFailure(status, body)
  return new GatewayError('upstream', 'The model provider ended its answer with an error. Retry later.')
}

const REMOVED = '[removed]'
const MAX_TEXT_LENGTH = 2000
const MAX_DETAILS_LENGTH = 4096

/**
 * Removes all words without a safe shape, because no list of patterns covers all forms of credentials and addresses that
 * upstreams repeat.
 */
export function redactText(text: string): string {
  const state: RedactionState = { nextRule: 'none', labelRule: 'none', previousWord: '' }
  return truncateAtSpace(text)
    .replace(INVISIBLE_CHARACTERS, '')
    .split(/(\s+)/)
    .map((chunk) => (isAddress(chunk) ? REMOVED : redactChunk(chunk, state)))
    .join('')
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

function redactJson(value: Json): Json {
  if (typeof value === 'string') return redactText(value)
  if (Array.isArray(value)) return value.map(redactJson)
  if (!isJsonObject(value)) return value
  const fields = Object.entries(value).map(([name, field = null]): [string, Json] => {
    const isPrivate = PRIVATE_FIELDS.has(name.toLowerCase()) && field !== null
    return [redactText(name), isPrivate ? REMOVED : redactJson(field)]
  })
  return Object.fromEntries(fields)
}

/** The atoms (text between separators) that a rule hides: none, those that are not plain words or numbers, or all. */
type RedactionRule = 'none' | 'names' | 'all'

interface RedactionState {
  nextRule: RedactionRule
  /** The rule for the value after a colon or equals sign, as in `password: …`. */
  labelRule: RedactionRule
  previousWord: string
}

function redactChunk(chunk: string, state: RedactionState): string {
  return chunk
    .split(SEPARATORS)
    .map((atom) => {
      const isWord = /[\p{L}\p{N}]/u.test(atom)
      const isHidden = isWord && (isHiddenBy(state.nextRule, atom) || !hasSafeShape(atom))
      if (isWord) updateRules(state, atom.replaceAll(/[^\w-]/g, '').toLowerCase())
      if (/[:=]/.test(atom) && state.labelRule !== 'none') state.nextRule = state.labelRule
      return isHidden ? REMOVED : atom
    })
    .join('')
}

function isHiddenBy(rule: RedactionRule, atom: string): boolean {
  return rule === 'all' || (rule === 'names' && !PLAIN_WORD.test(atom))
}

function updateRules(state: RedactionState, word: string): void {
  const isConnection = word === 'to' && state.previousWord.startsWith('connect')
  const isFollowedByName = FOLLOWED_BY_NAME.has(word) || isConnection
  state.nextRule = FOLLOWED_BY_PRIVATE.has(word) ? 'all' : isFollowedByName ? 'names' : 'none'
  state.labelRule = PRIVATE_FIELDS.has(word) ? 'all' : NAME_LABELS.has(word) ? 'names' : 'none'
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

/** Returns true for text in the form of words, numbers, model names, media types, field paths or known ids. */
function hasSafeShape(atom: string): boolean {
  const [start, end] = wordRange(atom)
  const word = atom.slice(start, end)
  if (!LEADING_MARKS.test(atom.slice(0, start)) || !TRAILING_MARKS.test(atom.slice(end))) return false
  if (word.length > MAX_ATOM_LENGTH || !ALLOWED_CHARACTERS.test(word)) return false
  if (KNOWN_ID.test(word)) return true
  if (SECRET_PREFIX.test(word) || DASHED_ADDRESS.test(word)) return false
  if (atom[start - 1] === '.') return isFieldPath(word) || /^\d{1,6}$/.test(word)
  const segments = word.split('/')
  if (segments.length > 2 || (segments.length === 2 && API_VERSION.test(segments[1] ?? ''))) return false
  return segments.every(isSafeName)
}

function isSafeName(name: string): boolean {
  if (name.includes('.')) {
    if (isFieldPath(name) || ABBREVIATIONS.has(name.toLowerCase())) return true
    if (!SINGLE_VERSION.test(name)) return false
  }
  const pieces = name.split(/[-_+.]/).flatMap((piece) => piece.split(NON_ASCII))
  if (pieces.length > 1 && pieces.some((piece) => INFRASTRUCTURE_WORDS.has(piece.toLowerCase()))) return false
  const mixedPieces = pieces.filter((piece) => /\d/.test(piece) && /[A-Za-z]/.test(piece))
  if (mixedPieces.length > MAX_MIXED_PIECES) return false
  return name.toLowerCase() !== 'localhost' && pieces.every(isSafePiece)
}

/** Short mixes such as `8x22b` are parts of model names. The random part of a key is usually longer. */
function isSafePiece(piece: string): boolean {
  if (/^[A-Za-z]*$/.test(piece)) return piece.length <= MAX_LETTERS
  if (/^\d+$/.test(piece)) return piece.length <= MAX_DIGITS
  return piece.length <= MAX_MIXED_LENGTH
}

function isFieldPath(path: string): boolean {
  const names = path.split('.')
  return FIELD_NAMES.has(names[0] ?? '') && names.every((name) => FIELD_NAMES.has(name) || /^\d{1,6}$/.test(name))
}

function wordRange(atom: string): readonly [number, number] {
  let start = 0
  let end = atom.length
  while (start < end && !isWordCharacter(atom, start)) start += 1
  while (end > start && !isWordCharacter(atom, end - 1)) end -= 1
  return [start, end]
}

function isWordCharacter(text: string, index: number): boolean {
  const unit = text.charCodeAt(index)
  return unit > 0x7f || unit === 0x5f || /[A-Za-z0-9]/.test(text.charAt(index))
}

const MAX_ATOM_LENGTH = 200
const MAX_LETTERS = 30
const MAX_DIGITS = 15
const MAX_MIXED_LENGTH = 8
const MAX_MIXED_PIECES = 3

const LEADING_MARKS = /^[$#*+.&~^-]*$/
const TRAILING_MARKS = /^(?:[.%*+&~^$-]|:(?!:))*$/
const ALLOWED_CHARACTERS = /^[A-Za-z0-9\p{L}\p{M}_+./-]+$/u
const NON_ASCII = /[\u{80}-\u{10ffff}]+/u
const SINGLE_VERSION = /^[A-Za-z0-9_+-]*\d\.\d[A-Za-z0-9_+-]*$/
const API_VERSION = /^v\d+$/i
const DASHED_ADDRESS = /\d{1,3}(?:-\d{1,3}){3}(?!\d)/
const SECRET_PREFIX =
  /^(?:(?:sk|pk|rk|sess|key|ghp|gho|hf|gsk|xai|pplx|xox[a-z])[-_].{4,}|AIza.{8,}|AKIA.{8,}|eyJ.{8,})/i
/** The form of ids that providers return to callers. */
const KNOWN_ID = /^(?:call|toolu|srvtoolu|fc|msg|resp|rs|item|chatcmpl|file|batch|msgbatch)_[A-Za-z0-9]{1,64}$/
const ABBREVIATIONS = nameSet('e.g i.e a.k.a u.s')

const INFRASTRUCTURE_WORDS = nameSet(
  'localhost db dbs database postgres postgresql pg mysql mariadb redis mongo mongodb kafka rabbitmq vllm primary ' +
    'replica prod production staging internal intranet corp lan svc cluster node pod host proxy vpc consul vault etcd ' +
    'k8s kube nginx haproxy envoy traefik srv backend ip',
)

const FIELD_NAMES = nameSet(
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
