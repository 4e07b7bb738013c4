import { GatewayError } from '../core/errors.ts'
import { createUtf8Decoder, decodeUtf8, joinBytes, parseJsonText } from '../core/http.ts'
import { type ByteSearch, createByteSearch } from '../core/byte-search.ts'
import { type JsonObject, MAX_DATA_URL_PREFIX_BYTES, isNodeBytes, flatten } from '../core/json.ts'
import type { Span } from '../core/prompt.ts'
import type { Steps } from '../core/steps.ts'
import { PartJoiner } from './join-json.ts'
import type { JsonScan, LongString } from './scan-json.ts'

interface ReceivedForm {
  readonly bytes: Uint8Array
  /** The fields without the files. A field that appears more than once is an array. */
  readonly fields: JsonObject
  /** The names of all parts, including the files. */
  readonly names: readonly string[]
  readonly modelSpan: Span | undefined
}

interface FormPart extends Span {
  readonly name: string
  readonly isFile: boolean
}

const MAX_PARTS = 1_000
const MAX_PART_HEAD_BYTES = 8 * 1024
const MAX_TEXT_BYTES = 1024 * 1024

/** Does not match additional parameters, or a boundary with spaces, because not all parsers trim the spaces. */
const FORM_TYPE = /^multipart\/form-data *; *boundary=(?:"([\w'()+,./:=?-]{1,70})"|([\w!#$%&'*+.^`|~-]{1,70})) *$/i

export function boundaryOf(contentType: string): string | undefined {
  const match = FORM_TYPE.exec(contentType)
  return match?.[1] ?? match?.[2]
}

/** Rejects ambiguous forms, because a vendor could read a model that the gateway did not authorize or bill. */
export function readForm(bytes: Uint8Array, boundary: string): ReceivedForm {
  const valuesByName = new Map<string, string[]>()
  let modelSpan: ReceivedForm['modelSpan']
  let textBytes = 0
  const parts = readParts(createByteSearch(bytes), boundary)
  for (const { name, isFile, start, end } of parts) {
    if (name === 'model' && isFile) throw formError('has a file as its model', 'model')
    if (name === 'model' && modelSpan !== undefined) throw formError('names more than one model', 'model')
    if (name === 'model') modelSpan = { start, end }
    if (isFile) continue
    textBytes += end - start
    if (textBytes > MAX_TEXT_BYTES) throw formError(`has more than ${MAX_TEXT_BYTES} bytes outside its files`)
    valuesByName.set(name, [...(valuesByName.get(name) ?? []), decode(bytes.subarray(start, end))])
  }
  const fields = [...valuesByName].map(([name, values]) => [name, values.length === 1 ? values[0] : values] as const)
  return { bytes, fields: Object.fromEntries(fields), names: parts.map(({ name }) => name), modelSpan }
}

export function replaceFormModel({ bytes, modelSpan }: ReceivedForm, model: string): Uint8Array {
  if (modelSpan === undefined) return bytes
  const replacement = new TextEncoder().encode(model)
  return joinBytes([bytes.subarray(0, modelSpan.start), replacement, bytes.subarray(modelSpan.end)])
}

function readParts(search: ByteSearch, boundary: string): readonly FormPart[] {
  const { bytes } = search
  const delimiter = `\n--${boundary}`
  if (!hasTextAt(bytes, 0, delimiter.slice(1))) throw formError('does not begin with its boundary')
  const parts: FormPart[] = []
  let offset = delimiter.length - 1
  while (!hasTextAt(bytes, offset, '--')) {
    if (!hasTextAt(bytes, offset, '\r\n')) throw formError('has a boundary that is followed by other characters')
    const headEnd = search.find('\r\n\r\n', offset)
    const lineFeed = search.find(delimiter, headEnd)
    if (headEnd === -1 || lineFeed === -1) throw formError('is truncated')
    if (headEnd - offset > MAX_PART_HEAD_BYTES)
      throw formError(`has a part with over ${MAX_PART_HEAD_BYTES} bytes of headers`)
    const end = lineFeed - 1
    if (!hasTextAt(bytes, end, '\r')) throw formError('has a boundary after a bare line feed')
    if (parts.length === MAX_PARTS) throw formError(`has more than ${MAX_PARTS} parts`)
    // For an empty value, `end` equals `start`. A smaller `end` means that the delimiter begins inside the blank line.
    const start = headEnd + 4
    if (end < start) throw formError('has a part without a blank line')
    parts.push({ ...readPartHead(decode(bytes.subarray(offset + 2, headEnd))), start, end })
    offset = lineFeed + delimiter.length
  }
  const trailingLength = bytes.length - offset - 2
  if (trailingLength > 0 && !(trailingLength === 2 && hasTextAt(bytes, offset + 2, '\r\n')))
    throw formError('continues after its end')
  return parts
}

/** Does not match an empty `filename` or a lone `filename*`, because not all parsers treat such a part as a file. */
const DISPOSITION =
  /^content-disposition: *form-data *; *name=(?:"([^"\\]*)"|([\w.[\]-]+))( *; *filename=(?:"(?:[^"\\]|\\.)+"|[^\s;"]+)(?: *; *filename\*=[^\s;"]+)?)? *$/i

function readPartHead(head: string): Pick<FormPart, 'name' | 'isFile'> {
  const lines = head.split('\r\n')
  const dispositions = lines.filter((line) => /^content-disposition/i.test(line))
  const match = DISPOSITION.exec(dispositions[0] ?? '')
  const isPlain = lines.every((line) => /^content-(disposition|type|length):/i.test(line))
  if (match === null || dispositions.length !== 1 || !isPlain || /[\r\n]/.test(lines.join(''))) {
    throw formError('has a part whose headers are not those of a form field')
  }
  return { name: match[1] ?? match[2] ?? '', isFile: match[3] !== undefined }
}

function hasTextAt(bytes: Uint8Array, offset: number, text: string): boolean {
  return [...text].every((letter, index) => bytes[offset + index] === letter.charCodeAt(0))
}

function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
  } catch {
    throw formError('contains text that is not UTF-8')
  }
}

function formError(problem: string, param?: string): GatewayError {
  return new GatewayError(
    'invalid-request',
    `The form ${problem}. Send multipart/form-data as browsers and SDKs write it.`,
    param === undefined ? {} : { param },
  )
}

const STEP_BYTES = 1024 * 1024

type ScannedParts = Pick<JsonScan, 'longStrings' | 'cuts'>

/**
 * `JSON.parse` blocks the event loop for several milliseconds per megabyte and per thousand keys, so long strings and
 * the parts between cuts are parsed in separate steps. `placeholder` must be random, so that callers cannot send it.
 */
export function* parseInSteps(
  bytes: Uint8Array,
  { longStrings, cuts }: ScannedParts,
  placeholder: string,
): Steps<unknown> {
  const joiner = new PartJoiner(bytes, placeholder)
  let stringCount = 0
  let offset = 0
  for (const cut of [...cuts, undefined]) {
    const end = cut?.position ?? bytes.length
    let outline = ''
    for (let string = longStrings[stringCount]; string !== undefined && string.start < end;) {
      outline += `${yield* decodeInSteps(bytes.subarray(offset, string.start))}${placeholder}${stringCount}`
      offset = string.end
      string = longStrings[++stringCount]
    }
    outline += yield* decodeInSteps(bytes.subarray(offset, end))
    offset = end + 1
    yield
    joiner.add(outline, cut)
  }
  if (longStrings.length === 0) return joiner.value
  const parsed = yield* parseStrings(bytes, longStrings)
  yield
  replacePlaceholders(joiner.value, placeholder, parsed)
  return joiner.value
}

function* parseStrings(bytes: Uint8Array, strings: readonly LongString[]): Steps<readonly string[]> {
  const parsed: string[] = []
  let stepBytes = STEP_BYTES
  for (const { start, end, isBase64 } of strings) {
    if (stepBytes >= STEP_BYTES) {
      yield
      stepBytes = 0
    }
    stepBytes += end - start
    const stringBytes = bytes.subarray(start, end)
    parsed.push(yield* isBase64 ? parseBase64String(stringBytes) : parseString(stringBytes))
  }
  return parsed
}

// oxlint-disable-next-line no-control-regex -- JSON strings must escape control characters
const NEEDS_PARSING = /[\0-\x1f\\]/

/** The base64 data has no escapes, but the `data:` prefix may have some. */
function* parseBase64String(bytes: Uint8Array): Steps<string> {
  const isPlain = /^[ -[\]-~]*$/.test(decodeUtf8(bytes.subarray(0, MAX_DATA_URL_PREFIX_BYTES)))
  if (!isPlain) return yield* parseString(bytes)
  return isNodeBytes(bytes) ? bytes.latin1Slice() : decodeUtf8(bytes)
}

function* parseString(bytes: Uint8Array): Steps<string> {
  const decode = createUtf8Decoder()
  let string = ''
  for (let offset = 0; offset < bytes.length;) {
    if (offset > 0) yield
    const end = endOfEscapes(bytes, offset, Math.min(offset + STEP_BYTES, bytes.length))
    const piece = decode(bytes.subarray(offset, end), end < bytes.length)
    string += NEEDS_PARSING.test(piece) ? parseJsonText(`"${piece}"`, true) : piece
    offset = end
  }
  return flatten(string)
}

function replacePlaceholders(value: unknown, placeholder: string, strings: readonly string[]): void {
  if (typeof value !== 'object' || value === null) return
  const fields = value as Record<string | number, unknown>
  // `for … in` creates a string for each index of an array, which takes longer than parsing the array.
  for (const name of Array.isArray(value) ? value.keys() : Object.keys(value)) {
    const field = fields[name]
    if (typeof field !== 'string') replacePlaceholders(field, placeholder, strings)
    else if (field.startsWith(placeholder)) fields[name] = strings[Number(field.slice(placeholder.length))]
  }
}

function* decodeInSteps(bytes: Uint8Array): Steps<string> {
  if (bytes.length <= STEP_BYTES) return decodeUtf8(bytes)
  const decode = createUtf8Decoder()
  let text = ''
  for (let offset = 0; offset < bytes.length; offset += STEP_BYTES) {
    yield
    text += decode(bytes.subarray(offset, offset + STEP_BYTES), offset + STEP_BYTES < bytes.length)
  }
  return flatten(text)
}

const BACKSLASH = 92
const LETTER_U = 117

/** Returns `limit`, or the end of an escape sequence that crosses it. `start` must not be inside an escape. */
function endOfEscapes(bytes: Uint8Array, start: number, limit: number): number {
  const before = bytes.subarray(start, limit)
  let offset = 0
  while (offset < before.length) {
    const escape = before.indexOf(BACKSLASH, offset)
    if (escape === -1) return limit
    offset = escape + (bytes[start + escape + 1] === LETTER_U ? 6 : 2)
  }
  return start + offset
}
