import { GatewayError } from '../core/errors.ts'
import { isJsonObject } from '../core/json.ts'
import type { Json, JsonObject } from '../core/json.ts'
import type { Span } from '../core/prompt.ts'

export interface ParseLimits {
  /** How deep objects and arrays may be nested. @default 64 */
  readonly depth?: number
  /** How many keys a body may have, and how many objects and arrays. @default 50,000 */
  readonly keys?: number
}

export interface ParsedBody {
  readonly body: JsonObject
  /** The body's JSON text as it came, without a byte order mark; written anew where keys had to be removed. */
  readonly text: string
  /** Where `text` holds the value of the top-level `model`; absent where exchanging it alone is not safe. */
  readonly modelSpan?: Span
  /** The most bytes that the body can take as UTF-8, as it came or written again: `1e20` becomes 21 digits. */
  readonly bytes: number
}

/** The longest number that `JSON.stringify` writes has 25 characters; the shortest that grows has 3. */
const EXPONENT_GROWTH = 22

const DEEPEST = 64
const MOST_KEYS = 50_000
const LONGEST_REASON = 100

/**
 * Bytes of a caller to one JSON object. Throws `invalid-request`.
 *
 * Depth and keys are counted in one linear pass before `JSON.parse`, which would take a depth of millions. A key that
 * stands twice is read differently by different servers, so such a body leaves as this library understood it.
 */
export function parseBody(bytes: Uint8Array, limits: ParseLimits = {}): ParsedBody {
  const text = decode(bytes)
  const scan = scanJson(text, limits.depth ?? DEEPEST, limits.keys ?? MOST_KEYS)
  const body = parseObject(text)
  const size = bytes.length + scan.exponents * EXPONENT_GROWTH
  if (scan.hasPrototypeKey) {
    const clean = withoutPrototypeKeys(body) as JsonObject
    return { body: clean, text: JSON.stringify(clean), bytes: size }
  }
  if (countKeys(body) !== scan.keys) return { body, text: JSON.stringify(body), bytes: size }
  return { body, text, ...(scan.modelSpan !== undefined && { modelSpan: scan.modelSpan }), bytes: size }
}

/** The text with another model in the place that `parseBody` found. */
export function replaceModel(text: string, span: Span, model: string): string {
  return text.slice(0, span.start) + JSON.stringify(model) + text.slice(span.end)
}

function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes)
  } catch {
    throw new GatewayError('invalid-request', 'The request body is not valid UTF-8. Send JSON encoded as UTF-8.')
  }
}

function parseObject(text: string): JsonObject {
  if (text.trim() === '') throw new GatewayError('invalid-request', 'The request body is empty. Send one JSON object.')
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    const reason = error instanceof Error ? error.message.slice(0, LONGEST_REASON) : 'it cannot be parsed'
    throw new GatewayError('invalid-request', `The request body is not valid JSON: ${reason}. Send one JSON object.`)
  }
  if (isJsonObject(value)) return value
  const found = Array.isArray(value) ? 'an array' : value === null ? 'null' : `a ${typeof value}`
  throw new GatewayError('invalid-request', `The request body is ${found}. Send one JSON object.`)
}

interface Scan {
  readonly keys: number
  readonly hasPrototypeKey: boolean
  /** Numbers that are written with an exponent. */
  readonly exponents: number
  readonly modelSpan: Span | undefined
}

const QUOTE = 34
const COMMA = 44
const DIGIT_0 = 48
const DIGIT_9 = 57
const COLON = 58
const UPPER_E = 69
const OPEN_BRACKET = 91
const BACKSLASH = 92
const CLOSE_BRACKET = 93
const LOWER_E = 101
const OPEN_BRACE = 123
const CLOSE_BRACE = 125

/** Needs no valid JSON: what is malformed is found by `JSON.parse` afterwards. */
function scanJson(text: string, deepest: number, mostKeys: number): Scan {
  let depth = 0
  let keys = 0
  let containers = 0
  let exponents = 0
  let keyStart = 0
  let keyEnd = 0
  let models = 0
  let modelComes = false
  let modelSpan: Span | undefined
  let hasPrototypeKey = false
  for (let at = 0; at < text.length; at++) {
    switch (text.charCodeAt(at)) {
      case QUOTE:
        keyStart = at + 1
        keyEnd = closingQuote(text, keyStart)
        at = keyEnd
        if (modelComes) modelSpan = { start: keyStart - 1, end: keyEnd + 1 }
        modelComes = false
        break
      case COLON: {
        if (++keys > mostKeys) throw tooManyKeys(mostKeys)
        const name = keyOfInterest(text, keyStart, keyEnd)
        if (name === '__proto__') hasPrototypeKey = true
        modelComes = name === 'model' && depth === 1
        if (modelComes) models += keyEnd - keyStart === 'model'.length ? 1 : 2
        break
      }
      case OPEN_BRACE:
      case OPEN_BRACKET:
        if (++depth > deepest) throw tooDeep(deepest)
        if (++containers > mostKeys) throw tooManyKeys(mostKeys)
        modelComes = false
        break
      case CLOSE_BRACE:
      case CLOSE_BRACKET:
        depth--
        break
      case COMMA:
        modelComes = false
        break
      case LOWER_E:
      case UPPER_E:
        if (isDigit(text.charCodeAt(at - 1))) exponents++
        break
      default:
    }
  }
  return { keys, hasPrototypeKey, exponents, modelSpan: models === 1 ? modelSpan : undefined }
}

function isDigit(code: number): boolean {
  return code >= DIGIT_0 && code <= DIGIT_9
}

/** Looking at the first units one by one keeps short strings cheap, searching keeps long ones cheap. */
const SHORT = 24

/** The index of the quote that ends a string, or the end of the text. Linear: each backslash is looked at once. */
function closingQuote(text: string, start: number): number {
  let at = start
  for (const near = Math.min(text.length, start + SHORT); at < near; at++) {
    const unit = text.charCodeAt(at)
    if (unit === QUOTE) return at
    if (unit === BACKSLASH) at++
  }
  let from = at
  for (;;) {
    const quote = text.indexOf('"', from)
    if (quote === -1) return text.length
    let backslashes = 0
    while (quote - 1 - backslashes >= from && text.charCodeAt(quote - 1 - backslashes) === BACKSLASH) backslashes++
    if (backslashes % 2 === 0) return quote
    from = quote + 1
  }
}

/** Every letter as `\uXXXX`. */
const LONGEST_ESCAPED = '__proto__'.length * 6

/** The key when it is `model` or `__proto__`, however it is written, else something else. */
function keyOfInterest(text: string, start: number, end: number): string | undefined {
  const length = end - start
  if (length === 5 && text.startsWith('model', start)) return 'model'
  if (length === 9 && text.startsWith('__proto__', start)) return '__proto__'
  if (length < 10 || length > LONGEST_ESCAPED) return undefined
  const written = text.slice(start, end)
  if (!written.includes('\\')) return undefined
  try {
    return String(JSON.parse(`"${written}"`))
  } catch {
    return undefined
  }
}

function countKeys(value: Json | undefined): number {
  if (typeof value !== 'object' || value === null) return 0
  if (Array.isArray(value)) return value.reduce((sum: number, item: Json) => sum + countKeys(item), 0)
  const fields = Object.values(value)
  return fields.reduce((sum: number, field) => sum + countKeys(field), fields.length)
}

function withoutPrototypeKeys(value: Json): Json {
  if (Array.isArray(value)) return value.map(withoutPrototypeKeys)
  if (!isJsonObject(value)) return value
  const kept = Object.entries(value).filter(([key]) => key !== '__proto__')
  return Object.fromEntries(kept.map(([key, field]) => [key, withoutPrototypeKeys(field ?? null)]))
}

function tooDeep(deepest: number): GatewayError {
  return new GatewayError('invalid-request', `The request body is nested deeper than ${deepest} levels. Flatten it.`)
}

function tooManyKeys(mostKeys: number): GatewayError {
  return new GatewayError(
    'invalid-request',
    `The request body has more than ${mostKeys} keys, objects or arrays. Send a smaller one.`,
  )
}
