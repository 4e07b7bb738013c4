import { GatewayError } from '../core/errors.ts'
import { asArray, asObject, asString, type Json, type JsonObject } from '../core/json.ts'
import type { EmbeddingResult, Embedding, EmbeddingRequest, EmbedInput, Encoding } from '../core/ports.ts'
import type { ReceivedBody } from '../core/prompt.ts'
import { asTokens } from './usage.ts'
import { arrayAt, fieldError, isAbsent, readModelName, numberAt } from './read-fields.ts'

/** OpenAI's limit on inputs per request. */
const MAX_INPUTS = 2048
const MAX_TOKENS_PER_INPUT = 100_000
const MAX_DIMENSIONS = 65_536
/** Maximum length of an input string, in UTF-16 code units. */
const MAX_TEXT_LENGTH = 1_048_576

export function readEmbeddingRequest(body: JsonObject, received?: ReceivedBody): EmbeddingRequest {
  const model = readModelName(body['model'])
  const inputs = readInputs(body['input'])
  const dimensions = numberAt(body['dimensions'], 'dimensions', { min: 1, max: MAX_DIMENSIONS, isInteger: true })
  return {
    native: body,
    ...(received === undefined ? {} : { received }),
    model,
    inputs,
    encoding: readEncoding(body['encoding_format']),
    ...(dimensions === undefined ? {} : { dimensions }),
  }
}

function readEncoding(value: Json | undefined): Encoding {
  if (isAbsent(value)) return 'float'
  if (value === 'float' || value === 'base64') return value
  throw fieldError('encoding_format', value, 'float or base64')
}

function readInputs(value: Json | undefined): readonly EmbedInput[] {
  if (typeof value === 'string') return [readTextInput(value, 'input')]
  if (!Array.isArray(value) || value.length === 0) throw fieldError('input', value, EXPECTED_INPUT)
  if (typeof value[0] === 'number') return [readTokenInput(value, 'input')]
  return arrayAt(value, 'input', MAX_INPUTS).map((item, index) =>
    typeof item === 'string' ? readTextInput(item, `input[${index}]`) : readTokenInput(item, `input[${index}]`),
  )
}

const EXPECTED_INPUT = 'a string, an array of strings, an array of tokens, or an array of token arrays'

function readTextInput(text: string, param: string): string {
  if (text === '') throw fieldError(param, text, 'a non-empty string')
  if (text.length > MAX_TEXT_LENGTH)
    throw fieldError(param, text, `at most ${MAX_TEXT_LENGTH} characters. Split it into several inputs`)
  return text
}

function readTokenInput(value: Json, param: string): readonly number[] {
  if (!Array.isArray(value)) throw fieldError(param, value, 'a string or an array of tokens')
  const tokens = arrayAt(value, param, MAX_TOKENS_PER_INPUT)
  if (tokens.length === 0) throw fieldError(param, value, 'at least one token')
  return tokens.map((token, index) => {
    if (typeof token === 'number' && Number.isInteger(token) && token >= 0) return token
    throw fieldError(`${param}[${index}]`, token, 'a non-negative integer')
  })
}

export function readEmbeddings(body: JsonObject, inputCount: number): EmbeddingResult {
  const vectors = Array.from({ length: inputCount }, (): Embedding | undefined => undefined)
  asArray(body['data']).forEach((item, position) => {
    const { index = position, embedding } = asObject(item) ?? {}
    if (typeof index === 'number' && index in vectors) vectors[index] = readVector(embedding)
  })
  const embeddings = vectors.filter((embedding) => embedding !== undefined)
  if (embeddings.length < inputCount) {
    throw new GatewayError('upstream', 'The model provider did not send one vector for each input.')
  }
  const inputTokens = asTokens(asObject(body['usage'])?.['prompt_tokens'])
  return {
    model: asString(body['model']) ?? '',
    embeddings,
    ...(inputTokens === undefined ? {} : { inputTokens }),
  }
}

function readVector(value: Json | undefined): Embedding | undefined {
  if (typeof value === 'string') return value
  const numbers = asArray(value).filter((number) => typeof number === 'number')
  return numbers.length > 0 && numbers.length === asArray(value).length ? numbers : undefined
}

export function writeEmbeddings(response: EmbeddingResult, encoding: Encoding, inputTokens: number): JsonObject {
  return {
    object: 'list',
    data: response.embeddings.map((embedding, index) => ({
      object: 'embedding',
      index,
      embedding: encodeVector(embedding, encoding),
    })),
    model: response.model,
    usage: { prompt_tokens: inputTokens, total_tokens: inputTokens },
  }
}

function encodeVector(embedding: Embedding, encoding: Encoding): Embedding {
  if (typeof embedding === 'string') return encoding === 'base64' ? embedding : fromBase64(embedding)
  return encoding === 'float' ? embedding : toBase64(embedding)
}

const BYTES_PER_NUMBER = 4
/** Maximum number of arguments per call of `String.fromCharCode`. Engines limit it. */
const MAX_ARGUMENTS = 8_192

/** Encodes little-endian 32-bit floats, regardless of the byte order of the machine. */
function toBase64(numbers: readonly number[]): string {
  const view = new DataView(new ArrayBuffer(numbers.length * BYTES_PER_NUMBER))
  numbers.forEach((number, index) => view.setFloat32(index * BYTES_PER_NUMBER, number, true))
  const bytes = new Uint8Array(view.buffer)
  let binary = ''
  for (let offset = 0; offset < bytes.length; offset += MAX_ARGUMENTS)
    binary += String.fromCharCode(...bytes.subarray(offset, offset + MAX_ARGUMENTS))
  return btoa(binary)
}

function fromBase64(text: string): readonly number[] {
  let binary: string
  try {
    binary = atob(text)
  } catch (cause) {
    throw new GatewayError('upstream', 'The model provider sent a vector that is not base64.', { cause })
  }
  const bytes = new Uint8Array(binary.length)
  for (let offset = 0; offset < bytes.length; offset += 1) bytes[offset] = binary.charCodeAt(offset)
  const view = new DataView(bytes.buffer)
  const count = Math.floor(view.byteLength / BYTES_PER_NUMBER)
  return Array.from({ length: count }, (_number, index) => view.getFloat32(index * BYTES_PER_NUMBER, true))
}
