import { asArray, isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import type { CacheWrites } from '../core/money.ts'
import type { Model } from '../core/ports.ts'
import type { ImagePart, Part, Prompt } from '../core/prompt.ts'

const SPACE = 0
const LINE_END = 1
const LOWER = 2
const UPPER = 3
const DIGIT = 4
const SYMBOL = 5

const CLASSES: Uint8Array = Uint8Array.from({ length: 128 }, (_, code) => classOf(String.fromCharCode(code)))
const VOWELS: Uint8Array = Uint8Array.from({ length: 128 }, (_, code) =>
  /[aeiouy]/i.test(String.fromCharCode(code)) ? 1 : 0,
)

function classOf(character: string): number {
  if (/[\r\n]/.test(character)) return LINE_END
  if (/\s/.test(character)) return SPACE
  if (/[a-z]/.test(character)) return LOWER
  if (/[A-Z]/.test(character)) return UPPER
  return /\d/.test(character) ? DIGIT : SYMBOL
}

/** Tokens per feature, fitted to exact o200k counts of prose, code, tool results and meeting transcripts. */
const WEIGHTS = {
  word: 1.04,
  letterBeyondFive: 0.044,
  letterBeyondFourteen: 0.3,
  // Long runs of consonants occur in keys and hashes.
  consonantBeyondThree: 0.4,
  threeDigits: 1.08,
  lineEnds: 0.4,
  spaces: 1.06,
  symbols: 0.83,
  repeatedSymbol: 0.05,
  differentSymbol: 0.25,
  latin: 0.55,
  nonLatinAlphabet: 0.38,
  cjk: 0.85,
  otherScript: 1.7,
}

/** Estimates o200k tokens. The estimate of prose or code is typically off by less than 10%. */
export function estimateTokens(text: string): number {
  let sum = 0
  let index = 0
  let bytes = text.length
  while (index < text.length) {
    const code = text.charCodeAt(index)
    if (code >= 128) {
      sum += nonAsciiWeight(code)
      bytes += code < 0x800 || (code >= 0xd800 && code < 0xe000) ? 1 : 2
      index++
      continue
    }
    const kind = CLASSES[code] ?? SYMBOL
    const end = kind === LOWER || kind === UPPER ? endOfWord(text, index) : endOfRun(text, index, kind)
    sum += kind === LOWER || kind === UPPER ? wordTokens(text, index, end) : runTokens(text, index, end)
    index = end
  }
  return Math.round(Math.min(bytes, Math.max(bytes / 8, sum)))
}

function nonAsciiWeight(code: number): number {
  if (code < 0x300) return WEIGHTS.latin
  if (code < 0x2000) return WEIGHTS.nonLatinAlphabet
  if (code >= 0x3040 && code < 0xd800) return WEIGHTS.cjk
  return WEIGHTS.otherScript
}

function endOfRun(text: string, start: number, kind: number): number {
  let end = start + 1
  while (end < text.length && CLASSES[text.charCodeAt(end)] === kind) end++
  return end
}

/** The tokenizer splits `fooBar` before `Bar`. */
function endOfWord(text: string, start: number): number {
  let end = start
  while (end < text.length && CLASSES[text.charCodeAt(end)] === UPPER) end++
  while (end < text.length && CLASSES[text.charCodeAt(end)] === LOWER) end++
  return end
}

function wordTokens(text: string, start: number, end: number): number {
  const length = end - start
  let tokens = WEIGHTS.word
  if (length > 5) tokens += WEIGHTS.letterBeyondFive * (length - 5)
  if (length > 14) tokens += WEIGHTS.letterBeyondFourteen * (length - 14)
  let consonants = 0
  for (let index = start; index < end; index++) {
    consonants = VOWELS[text.charCodeAt(index)] === 1 ? 0 : consonants + 1
    if (consonants > 3) tokens += WEIGHTS.consonantBeyondThree
  }
  return tokens
}

function runTokens(text: string, start: number, end: number): number {
  const length = end - start
  const kind = CLASSES[text.charCodeAt(start)]
  if (kind === DIGIT) return WEIGHTS.threeDigits * Math.ceil(length / 3)
  if (kind === LINE_END) return WEIGHTS.lineEnds
  if (kind === SYMBOL) return symbolTokens(text, start, end)
  const isBeforeDigit = length === 1 && CLASSES[text.charCodeAt(end)] === DIGIT
  return length > 1 || isBeforeDigit ? WEIGHTS.spaces : 0
}

function symbolTokens(text: string, start: number, end: number): number {
  let tokens = WEIGHTS.symbols
  for (let index = start + 1; index < end; index++) {
    tokens += text.charCodeAt(index) === text.charCodeAt(index - 1) ? WEIGHTS.repeatedSymbol : WEIGHTS.differentSymbol
  }
  return tokens
}

/** Quantities for estimating and bounding a prompt's tokens. */
export interface PromptWeight {
  /** Bytes of the body without base64 images. Base64 text documents count with their maximum decoded size. */
  readonly bytes: number
  readonly images: number
  /** Allowance for tokens that a vendor adds to the request, messages and tools, such as role markers. */
  readonly overhead: number
  /** Maximum number of tokens that a translation to another format adds. */
  readonly translation: number
  /** True if there are documents or unknown parts, such as audio, which vendors bill above the price of text. */
  readonly document?: boolean
  /** The longest cache entry that a `cache_control` marker of the caller requests. */
  readonly cacheWrites: CacheWrites
}

const REQUEST_OVERHEAD = 64
const MESSAGE_OVERHEAD = 8
const TOOL_OVERHEAD = 16
const TOOL_INSTRUCTION_OVERHEAD = 1000
/** The default of `Model.imageTokens`. */
const MAX_IMAGE_TOKENS = 9600
/** Tokens of braces, quotes and field names that another format adds to the request and to each part and tool. */
const TRANSLATED_ITEM_TOKENS = 32
/** Tokens of an instruction that replaces a setting without an equivalent in the other format. */
const TRANSLATED_SHAPE_TOKENS = 128
const CUSTOM_TOOL_TOKENS = 160
/** 4 characters of base64 can decode to 9 bytes: 3 invalid bytes, each replaced by a 3-byte character. */
const DECODED_GROWTH = 1.25
/** A number with an exponent, of at least 3 bytes, becomes at most 25 bytes. */
const EXPONENT_GROWTH = 22
/** A translation writes a call's name or id up to three times, with escapes of 6 bytes. */
const NAME_GROWTH = 18

type MutableWeight = { -readonly [Field in keyof PromptWeight]: PromptWeight[Field] }

/** `bytes` is the size of the body. */
export function weighPrompt(prompt: Prompt, bytes: number): PromptWeight {
  const weight: MutableWeight = {
    bytes,
    images: 0,
    overhead: REQUEST_OVERHEAD,
    translation: 0,
    cacheWrites: 'none',
  }
  const { cache_control: marker } = prompt.native.value
  if (marker !== undefined) weighMarker(marker, weight)
  for (const message of prompt.messages) {
    weight.overhead += MESSAGE_OVERHEAD
    for (const part of message.parts) weighPart(part, weight)
  }
  if (prompt.tools.length > 0) weight.overhead += TOOL_INSTRUCTION_OVERHEAD
  weight.overhead += prompt.tools.length * TOOL_OVERHEAD
  weight.translation += (1 + prompt.tools.length) * TRANSLATED_ITEM_TOKENS
  if (prompt.settings.shape?.type === 'json') weight.translation += TRANSLATED_SHAPE_TOKENS
  for (const { parameters, native } of prompt.tools) {
    weighMarker(native.value['cache_control'], weight)
    weighMarker(native.value['caching'], weight)
    if (parameters === undefined) weighTool(native.value, weight, 0)
  }
  return weight
}

function weighMarker(marker: Json | undefined, weight: MutableWeight): void {
  if (!isJsonObject(marker)) return
  if (marker['ttl'] === '1h') weight.cacheWrites = '1h'
  else if (weight.cacheWrites === 'none') weight.cacheWrites = '5m'
}

/** Some blocks contain blocks or tools that have markers of their own. */
function weighNestedMarkers(value: Json | undefined, weight: MutableWeight): void {
  if (weight.cacheWrites === '1h' || typeof value !== 'object' || value === null) return
  if (Array.isArray(value)) {
    for (const element of value as readonly Json[]) weighNestedMarkers(element, weight)
    return
  }
  const fields = value as JsonObject
  weighMarker(fields['cache_control'], weight)
  for (const name in fields) weighNestedMarkers(fields[name], weight)
}

/** The translated names of the tools in a group start with the group's name. */
function weighTool(tool: JsonObject, weight: MutableWeight, groupNameLength: number): void {
  weight.translation += CUSTOM_TOOL_TOKENS + groupNameLength
  const nameLength = typeof tool['name'] === 'string' ? tool['name'].length : 0
  for (const nested of asArray(tool['tools'])) if (isJsonObject(nested)) weighTool(nested, weight, nameLength)
}

/** A custom call is translated to a function call with one JSON argument. */
function weighOpaque({ input, namespace, tools }: JsonObject, weight: MutableWeight): void {
  if (typeof input === 'string') weight.translation += translatedInputGrowth(input)
  if (typeof namespace === 'string') weight.translation += namespace.length
  for (const tool of asArray(tools)) if (isJsonObject(tool)) weighTool(tool, weight, 0)
}

function weighPart(part: Part, weight: MutableWeight): void {
  weight.translation += TRANSLATED_ITEM_TOKENS
  const marker = part.native?.value['cache_control']
  if (marker !== undefined) weighMarker(marker, weight)
  switch (part.type) {
    case 'image': {
      const data = imageData(part)
      if (data === undefined) return
      weight.images++
      weight.bytes -= data.length
      return
    }
    case 'document':
      weighNestedMarkers(part.native?.value['source'], weight)
      weight.document = true
      if (part.source.type === 'base64' && part.source.mediaType.startsWith('text/')) {
        weight.bytes += Math.ceil(part.source.data.length * DECODED_GROWTH)
      }
      return
    case 'opaque':
      weighNestedMarkers(part.native.value, weight)
      weight.document = true
      return weighOpaque(part.native.value, weight)
    case 'tool-call':
      if (typeof part.native?.value['namespace'] === 'string') {
        weight.translation += part.native.value['namespace'].length
      }
      weight.translation += translatedInputGrowth(part.input) + NAME_GROWTH * (part.name.length + part.id.length)
      return
    case 'tool-result':
      weight.translation += NAME_GROWTH * part.callId.length
      for (const nested of part.content) weighPart(nested, weight)
      return
    default:
  }
}

/** Returns an upper bound on the tokens that a translation of the input adds, for example by escaping it. */
function translatedInputGrowth(input: string): number {
  if (!/\d[eE]/.test(input)) return input.length
  let growth = input.length
  for (const _ of input.matchAll(/\d[eE]/g)) growth += EXPONENT_GROWTH
  return growth
}

export function imageData({ source }: ImagePart): string | undefined {
  return source.type === 'base64' && source.mediaType.startsWith('image/') ? source.data : undefined
}

export function boundByBytes(weight: PromptWeight, model: Model, isTranslated: boolean): number {
  return weight.bytes + (isTranslated ? weight.translation : 0) + tokensOutsideText(weight, model)
}

export function tokensOutsideText({ overhead, images }: PromptWeight, model: Model): number {
  return overhead + images * (model.imageTokens ?? MAX_IMAGE_TOKENS)
}

export function upstreamWindowOf(model: Model): number {
  return model.upstreamWindowTokens ?? model.contextWindowTokens
}

/** A lone surrogate counts as 3 bytes. */
export function utf8Length(text: string): number {
  let bytes = text.length
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index)
    if (code < 0x80) continue
    bytes += code < 0x800 ? 1 : 2
    const isPair = code >= 0xd800 && code < 0xdc00 && (text.charCodeAt(index + 1) & 0xfc00) === 0xdc00
    if (isPair) index++
  }
  return bytes
}
