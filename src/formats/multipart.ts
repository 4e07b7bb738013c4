import { searchBytes, type ByteSearch } from '../core/answer.ts'
import { GatewayError } from '../core/errors.ts'
import type { JsonObject } from '../core/json.ts'

export interface ReceivedForm {
  readonly bytes: Uint8Array
  /** The fields without the files. A field that appears more than once is an array. */
  readonly fields: JsonObject
  readonly modelSpan: { readonly start: number; readonly end: number } | undefined
}

interface FormPart {
  readonly name: string
  readonly isFile: boolean
  readonly start: number
  readonly end: number
}

const MAX_PARTS = 1_000
const MAX_PART_HEAD_BYTES = 8 * 1024
/** Maximum size of all fields except files, in bytes. */
const MAX_TEXT_BYTES = 1024 * 1024

/**
 * Returns the boundary of a content type. Returns undefined for other content types, and for a boundary with spaces,
 * which not all parsers trim.
 */
export function boundaryOf(contentType: string): string | undefined {
  const found = /^multipart\/form-data *; *boundary=(?:"([\w'()+,./:=?-]{1,70})"|([\w!#$%&'*+.^`|~-]{1,70})) *$/i.exec(
    contentType,
  )
  return found?.[1] ?? found?.[2]
}

/**
 * Returns the fields of a form. Throws `invalid-request` for a form that a vendor's parser could read differently.
 * Otherwise, a caller could use a model that the gateway does not permit or bill.
 */
export function readForm(bytes: Uint8Array, boundary: string): ReceivedForm {
  const texts = new Map<string, string[]>()
  let modelSpan: ReceivedForm['modelSpan']
  let textBytes = 0
  for (const { name, isFile, start, end } of partsOf(searchBytes(bytes), boundary)) {
    if (name === 'model' && (isFile || modelSpan !== undefined)) throw formError('names more than one model', 'model')
    if (name === 'model') modelSpan = { start, end }
    if (isFile) continue
    textBytes += end - start
    if (textBytes > MAX_TEXT_BYTES) throw formError(`has more than ${MAX_TEXT_BYTES} bytes outside of its files`)
    texts.set(name, [...(texts.get(name) ?? []), decode(bytes.subarray(start, end))])
  }
  const fields = [...texts].map(([name, values]) => [name, values.length === 1 ? values[0] : values] as const)
  return { bytes, fields: Object.fromEntries(fields), modelSpan }
}

export function replaceFormModel({ bytes, modelSpan }: ReceivedForm, model: string): Uint8Array {
  if (modelSpan === undefined) return bytes
  const replacement = new TextEncoder().encode(model)
  const { start, end } = modelSpan
  const whole = new Uint8Array(bytes.length - (end - start) + replacement.length)
  whole.set(bytes.subarray(0, start))
  whole.set(replacement, start)
  whole.set(bytes.subarray(end), start + replacement.length)
  return whole
}

function partsOf(search: ByteSearch, boundary: string): readonly FormPart[] {
  const { bytes } = search
  const delimiter = `\n--${boundary}`
  if (!isAt(bytes, 0, delimiter.slice(1))) throw formError('does not begin with its boundary')
  const parts: FormPart[] = []
  let at = delimiter.length - 1
  while (!isAt(bytes, at, '--')) {
    if (!isAt(bytes, at, '\r\n')) throw formError('has a boundary that is followed by other characters')
    const headEnd = search.find('\r\n\r\n', at)
    const lineFeed = search.find(delimiter, headEnd)
    if (headEnd === -1 || lineFeed === -1 || headEnd - at > MAX_PART_HEAD_BYTES) throw formError('is cut off')
    const end = lineFeed - 1
    if (!isAt(bytes, end, '\r')) throw formError('has a boundary after a bare line feed')
    if (parts.length === MAX_PARTS) throw formError(`has more than ${MAX_PARTS} parts`)
    // An empty value starts at the next delimiter.
    const start = headEnd + 4
    if (end < start) throw formError('has a part without a blank line')
    parts.push({ ...readHead(decode(bytes.subarray(at + 2, headEnd))), start, end })
    at = lineFeed + delimiter.length
  }
  const tail = bytes.length - at - 2
  if (tail > 0 && !(tail === 2 && isAt(bytes, at + 2, '\r\n'))) throw formError('continues after its end')
  return parts
}

/**
 * Matches the `Content-Disposition` header of a part. Does not match an empty `filename`, or `filename*` without
 * `filename`, because not all parsers treat such a part as a file.
 */
const DISPOSITION =
  /^content-disposition: *form-data *; *name=(?:"([^"\\]*)"|([\w.[\]-]+))( *; *filename=(?:"(?:[^"\\]|\\.)+"|[^\s;"]+)(?: *; *filename\*=[^\s;"]+)?)? *$/i

function readHead(head: string): Pick<FormPart, 'name' | 'isFile'> {
  const lines = head.split('\r\n')
  const dispositions = lines.filter((line) => /^content-disposition/i.test(line))
  const found = DISPOSITION.exec(dispositions[0] ?? '')
  const isPlain = lines.every((line) => /^content-(disposition|type|length):/i.test(line))
  if (found === null || dispositions.length !== 1 || !isPlain || /[\r\n]/.test(lines.join(''))) {
    throw formError('has a part without the headers of a form field')
  }
  return { name: found[1] ?? found[2] ?? '', isFile: found[3] !== undefined }
}

function isAt(bytes: Uint8Array, at: number, text: string): boolean {
  return [...text].every((letter, index) => bytes[at + index] === letter.charCodeAt(0))
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
