/**
 * Shapes of text that cannot be an address or a credential: words, numbers, model names, media types and field paths.
 * Everything is decided by the shape of one atom, a run of characters without spaces, quotes and brackets.
 */
export function hasSafeShape(atom: string): boolean {
  const [start, end] = wordRange(atom)
  const core = atom.slice(start, end)
  if (!LEADING_MARKS.test(atom.slice(0, start)) || !TRAILING_MARKS.test(atom.slice(end))) return false
  if (core.length > MAX_ATOM || !ALLOWED.test(core)) return false
  if (KNOWN_ID.test(core)) return true
  if (SECRET_PREFIX.test(core) || DASHED_ADDRESS.test(core)) return false
  if (atom[start - 1] === '.') return isFieldPath(core) || /^\d{1,6}$/.test(core)
  const sides = core.split('/')
  if (sides.length > 2 || (sides.length === 2 && API_VERSION.test(sides[1] ?? ''))) return false
  return sides.every(isName)
}

/** Dots are allowed in one version number (`gpt-4.1-mini`, `3.5`) and in paths of known fields (`messages.0.content`). */
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

/** Random characters of a key are longer than the mixed pieces of a model name, such as `4o`, `8x22b` and `qwen2`. */
function isPiece(piece: string): boolean {
  if (/^[A-Za-z]*$/.test(piece)) return piece.length <= MAX_LETTERS
  if (/^\d+$/.test(piece)) return piece.length <= MAX_DIGITS
  return piece.length <= MAX_MIXED
}

function isMixed(piece: string): boolean {
  return /\d/.test(piece) && /[A-Za-z]/.test(piece)
}

function isFieldPath(path: string): boolean {
  const names = path.split('.')
  return FIELDS.has(names[0] ?? '') && names.every((name) => FIELDS.has(name) || /^\d{1,6}$/.test(name))
}

/** Where the first letter or digit of an atom begins and the last one ends. */
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

const MAX_ATOM = 200
const MAX_LETTERS = 30
const MAX_DIGITS = 15
const MAX_MIXED = 8
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
/** Ids that callers know from earlier answers. */
const KNOWN_ID = /^(?:call|toolu|srvtoolu|fc|msg|resp|rs|item|chatcmpl|file|batch|msgbatch)_[A-Za-z0-9]{1,64}$/
const ABBREVIATIONS: ReadonlySet<string> = new Set(['e.g', 'i.e', 'a.k.a', 'vs', 'u.s'])

const INFRASTRUCTURE: ReadonlySet<string> = new Set(
  (
    'localhost db dbs database postgres postgresql pg mysql mariadb redis mongo mongodb kafka rabbitmq vllm primary ' +
    'replica prod production staging internal intranet corp lan svc cluster node pod host proxy vpc consul vault etcd ' +
    'k8s kube nginx haproxy envoy traefik srv backend ip'
  ).split(' '),
)

const FIELDS: ReadonlySet<string> = new Set(
  (
    'messages message content text type role name id input output system tools tool tool_choice tool_calls tool_call ' +
    'tool_call_id tool_use tool_use_id tool_result function functions function_call arguments parameters properties ' +
    'required items enum schema json_schema strict input_schema output_format response_format model models max_tokens ' +
    'max_completion_tokens max_output_tokens temperature top_p top_k stop stop_sequences stream stream_options ' +
    'include_usage thinking budget_tokens reasoning reasoning_effort effort summary metadata user_id n logprobs ' +
    'top_logprobs seed image image_url document source media_type data url file file_id title context citations ' +
    'cache_control ttl cache body query path header headers instructions additionalProperties anyOf oneOf allOf ' +
    'presence_penalty frequency_penalty logit_bias service_tier parallel_tool_calls prediction modalities audio format ' +
    'encoding_format dimensions custom_id params requests redacted_thinking signature partial'
  ).split(' '),
)
