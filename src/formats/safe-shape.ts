import { isAccountPath } from './account-names.ts'
import { nameSet } from './parse-body.ts'

/** Returns true for text in the form of words, numbers, model names, media types, field paths or known ids. */
export function hasSafeShape(atom: string): boolean {
  const [start, end] = wordRange(atom)
  const word = atom.slice(start, end)
  if (ISO_TIME.test(word)) return true
  if (!LEADING_MARKS.test(atom.slice(0, start)) || !TRAILING_MARKS.test(atom.slice(end))) return false
  if (word.length > MAX_ATOM_LENGTH || !ALLOWED_CHARACTERS.test(word)) return false
  if (KNOWN_ID.test(word)) return true
  if (SECRET_PREFIX.test(word) || DASHED_ADDRESS.test(word) || isAccountPath(word)) return false
  if (GUID.test(word)) return false
  if (DECIMAL.test(word)) return true
  if (atom[start - 1] === '.') return isFieldPath(word) || /^\d{1,6}$/.test(word)
  const segments = word.split('/')
  if (segments.length > 2 || (segments.length === 2 && API_VERSION.test(segments[1] ?? ''))) return false
  return segments.every(isSafeName)
}

/** Returns true for numbers that may identify an account, including `1234-5678-9012`. */
export function isLongNumber(atom: string): boolean {
  const number = numberIn(atom)
  return LONG_NUMBER.test(number) && number.replaceAll('-', '').length > MAX_DIGITS
}

/** Returns true for numbers up to the length of a time in milliseconds. */
export function isSafeQuantity(atom: string): boolean {
  return QUANTITY.test(numberIn(atom))
}

function numberIn(atom: string): string {
  return atom.slice(...wordRange(atom))
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
/** Account numbers have nine digits or more. */
const MAX_DIGITS = 8
const MAX_MIXED_LENGTH = 8
const MAX_MIXED_PIECES = 3

const LEADING_MARKS = /^[$#*+.&~^-]*$/
const TRAILING_MARKS = /^(?:[.%*+&~^$-]|:(?!:))*$/
const ALLOWED_CHARACTERS = /^[A-Za-z0-9\p{L}\p{M}_+./-]+$/u
const NON_ASCII = /[\u{80}-\u{10ffff}]+/u
const SINGLE_VERSION = /^[A-Za-z0-9_+-]*\d\.\d[A-Za-z0-9_+-]*$/
const API_VERSION = /^v\d+$/i
const LONG_NUMBER = /^\d[\d-]*$/
const QUANTITY = /^\d{1,13}$/
/** A fraction, or a time with its unit. Providers write delays with up to nine decimals, and JSON with up to 17. */
const DECIMAL = /^(?:\d{1,8}\.\d{1,20}|\d{1,13}(?:\.\d{1,20})?m?s)$/
const ISO_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:\d\d)?$/
const GUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i
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
