import { sha256 } from '#hash'
import type { Completion } from '../../core/completion.ts'
import { digestJson } from '../../core/cache.ts'
import { asArray, asObject, flatten, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import { lastUserIndex } from '../../core/messages.ts'
import { type Dialect, type Message, type Native, type Part, type Prompt, type TextPart } from '../../core/prompt.ts'
import { mayBeWorkedOn } from './stand-alone.ts'

export interface CacheKeyOptions {
  readonly owner: string
  readonly modelName: string
  /** Headers that can change the response. @default none */
  readonly headers?: string | undefined
  /** True if short texts need not be hashed, because the entries stay in this process. @default false */
  readonly isLocal?: boolean
}

export interface CacheKey {
  /** A hit requires the same scope. It covers all that affects the response except the text of a text-only question. */
  readonly scope: string
  readonly id: string
  /** The text of the last user message: as received if it may be worked on, otherwise normalized. */
  readonly text: string
  /** The text of the preceding user message, to which a short question may refer. */
  readonly previousText: string
  readonly comparable: boolean
}

/** Fields that do not affect the response. A replayed response repeats them from the request that it answers. */
const CALLER_FIELDS = 'model stream stream_options user safety_identifier metadata prompt_cache_key'

/** Body fields that the prompt contains or that do not affect the response. */
const PARSED_FIELDS: Readonly<Record<Dialect, ReadonlySet<string>>> = {
  chat: bodyFields('messages max_tokens max_completion_tokens temperature top_p top_k stop n'),
  messages: bodyFields('messages system max_tokens temperature top_p top_k stop_sequences'),
  responses: bodyFields('input instructions max_output_tokens temperature top_p store'),
}

function bodyFields(names: string): ReadonlySet<string> {
  return new Set(`${CALLER_FIELDS} ${names}`.split(' '))
}

/** Maximum length of a text that is its own digest, because hashing a short text costs more than comparing it. */
const MAX_PLAIN_LENGTH = 512

/**
 * In UTF-16 code units. Longer questions are not compared, because similar long texts are usually different questions, and
 * searching some megabytes for words of work would block the event loop.
 */
const MAX_COMPARED_LENGTH = 4000

/** Requests in different formats can have the same scope. Fields of one format are labeled with its name. */
export function cacheKeyOf(prompt: Prompt, options: CacheKeyOptions): CacheKey | undefined {
  const questionIndex = lastUserIndex(prompt.messages)
  const last = prompt.messages[questionIndex]
  const { received: body, value } = prompt.native
  // The upstream stores the messages of a thread. A replayed response has one choice and no log probabilities. The key is
  // made from parsed numbers.
  const isCacheable =
    value['thread'] === undefined &&
    (prompt.settings.choices ?? 1) <= 1 &&
    !wantsLogprobs(value) &&
    body?.hasLongNumbers !== true
  if (last === undefined || !isCacheable) return undefined
  const received = textOf(last)
  const isLong = received.length > MAX_COMPARED_LENGTH
  const normalized = isLong ? received : normalizeText(received)
  const isExact = isLong || (normalized !== received && mayBeWorkedOn(prompt, normalized))
  const text = isExact ? received : normalized
  const keyText = new KeyText()
  keyText.add('owner', options.owner)
  keyText.add('model', options.modelName)
  if (options.headers) keyText.add('headers', options.headers)
  addSettings(keyText, prompt)
  prompt.messages.forEach((message, index) =>
    index === questionIndex ? addQuestion(keyText, message, isExact) : addMessage(keyText, message),
  )
  const isOwnDigest = (digested: string): boolean => options.isLocal === true && digested.length <= MAX_PLAIN_LENGTH
  const scope = isOwnDigest(keyText.text) ? flatten(keyText.text) : sha256(keyText.text)
  const previous = prompt.messages.findLast(({ role }, index) => role === 'user' && index < questionIndex)
  return {
    scope,
    // The separators keep a text that looks like a hash apart from the text with that hash.
    id: isOwnDigest(text) ? flatten(`${scope}:${text}`) : `${scope}.${sha256(text)}`,
    text,
    previousText: previous === undefined ? '' : textOf(previous),
    comparable: questionIndex === prompt.messages.length - 1 && isComparable(last, text),
  }
}

function wantsLogprobs(value: JsonObject): boolean {
  return value['logprobs'] === true || asArray(value['include']).includes('message.output_text.logprobs')
}

function isComparable({ parts }: Message, text: string): boolean {
  if (text === '' || text.length > MAX_COMPARED_LENGTH) return false
  return parts.every((part) => part.type === 'text') && !looksLikeCode(text)
}

/** Each value is preceded by its length, so that different lists of values have different texts. */
class KeyText {
  text = ''

  add(name: string, value: string): void {
    this.text += `${name} ${value.length}:\n${value}\n`
  }
}

function addSettings(keyText: KeyText, prompt: Prompt): void {
  const { maxTokens, temperature, topP, topK, stop } = prompt.settings
  keyText.add(
    'settings',
    `${maxTokens} ${temperature} ${topP} ${topK} ${stop === undefined ? '' : JSON.stringify(stop)}`,
  )
  const { value, dialect } = prompt.native
  const parsed = PARSED_FIELDS[dialect]
  let otherFields: Record<string, Json | undefined> | undefined
  for (const field of Object.keys(value)) {
    if (!parsed.has(field) && value[field] !== undefined) (otherFields ??= {})[field] = value[field]
  }
  // A body may set the output limit under both of its names, but the prompt contains only one of the values.
  const hasBothLimits = value['max_tokens'] !== undefined && value['max_completion_tokens'] !== undefined
  if (hasBothLimits) (otherFields ??= {})['max_tokens'] = value['max_tokens']
  if (topK === undefined && value['top_k'] !== undefined) (otherFields ??= {})['top_k'] = value['top_k']
  if (otherFields !== undefined) keyText.add(`fields of ${dialect}`, canonicalJson(otherFields))
}

function addMessage(keyText: KeyText, message: Message): void {
  if (!isPlain(message)) {
    keyText.add('message', serializeNative(message.native, message.parts))
    return
  }
  const { role, parts } = message
  keyText.add('from', role)
  for (const part of parts) {
    if (part.type === 'text') keyText.add('text', part.text)
  }
}

function addQuestion(keyText: KeyText, message: Message, isExact: boolean): void {
  keyText.add('question', serializeOtherFields(message.native, MESSAGE_FIELDS))
  const hasOnlyText = message.parts.every((part) => part.type === 'text')
  if (hasOnlyText && message.parts.length > 1) keyText.add('parts', lengthsOf(message.parts))
  for (const part of message.parts) {
    if (part.type !== 'text') keyText.add('part', serializeNative(part.native, part))
    else if (!isPlainText(part)) keyText.add('text of', serializeOtherFields(part.native, ['text']))
    // The position of an image between the texts is significant.
    if (part.type === 'text' && !hasOnlyText) keyText.add('text', isExact ? part.text : normalizeText(part.text))
  }
}

function lengthsOf(parts: readonly Part[]): string {
  return parts.map((part) => (part.type === 'text' ? part.text.length : 0)).join(' ')
}

const MESSAGE_FIELDS: readonly string[] = ['role', 'content']
const TEXT_FIELDS: readonly string[] = ['type', 'text']

function isPlain(message: Message): boolean {
  const native = message.native?.value
  if (native !== undefined && (native['role'] !== message.role || !hasOnlyFields(native, MESSAGE_FIELDS))) return false
  return message.parts.every((part) => part.type === 'text' && isPlainText(part))
}

function isPlainText(part: TextPart): boolean {
  return (
    part.native === undefined || (part.native.value['type'] === 'text' && hasOnlyFields(part.native.value, TEXT_FIELDS))
  )
}

function hasOnlyFields(value: JsonObject, fields: readonly string[]): boolean {
  for (const field in value) if (!fields.includes(field) && value[field] !== undefined) return false
  return true
}

function serializeOtherFields(native: Native | undefined, excluded: readonly string[]): string {
  if (native === undefined || hasOnlyFields(native.value, excluded)) return ''
  const extras = Object.fromEntries(Object.entries(native.value).filter(([field]) => !excluded.includes(field)))
  return `${native.dialect} ${canonicalJson(extras)}`
}

function serializeNative(native: Native | undefined, fallback: Part | readonly Part[]): string {
  return native === undefined ? JSON.stringify(fallback) : `${native.dialect} ${digestJson(native.value, sha256)}`
}

function textOf({ parts }: Message): string {
  const [first] = parts
  if (parts.length === 1 && first?.type === 'text') return first.text
  return parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n\n')
}

/** Sorting the fields of a long list of tools would cost more than the rest of the key. */
const MAX_SORTED_LENGTH = 16_384

/** Sorts fields by name, except the properties of a JSON schema, whose order is the order of the model's output. */
function canonicalJson(value: JsonObject): string {
  const text = JSON.stringify(sortFields(value))
  if (text.length > MAX_SORTED_LENGTH) return text
  return JSON.stringify(value, (name, field: Json | undefined) =>
    isJsonObject(field) && name !== 'properties' ? sortFields(field) : field,
  )
}

function sortFields(value: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(value).toSorted(([left], [right]) => (left < right ? -1 : 1)))
}

const CODE_FENCE = /```|~~~/
const INDENTED_LINE = /\n[ \t]+\S/
/** A nested list or the cells of a table. */
const STRUCTURED_TEXT = /\n[ \t]+(?:[-*+•]|\d+[.)])\s|\S\t\S/
const CODE_CHARACTER = /[={}();:<>[\]#]/
const NON_ASCII = /[^\0-\x7F]/

function looksLikeCode(text: string): boolean {
  return CODE_FENCE.test(text) || STRUCTURED_TEXT.test(text) || (INDENTED_LINE.test(text) && CODE_CHARACTER.test(text))
}

/**
 * Composes the text and removes white space at both ends. Keeps the indentation of the first of several lines, because it
 * is significant in code.
 */
export function normalizeText(text: string): string {
  const composed = compose(text)
  const trimmed = composed.trim()
  return trimmed.includes('\n') ? composed.trimEnd().replace(LEADING_EMPTY_LINES, '') : trimmed
}

const LEADING_EMPTY_LINES = /^(?:[^\S\n]*\n)+/

/** Composing needs time in proportion to the square of the number of consecutive combining marks. */
const MANY_MARKS = /(?:^|\P{M})\p{M}{31}/u

const LETTER_WITH_MARKS = /\p{L}\p{M}+/gu

/**
 * Composes letters and their marks. Leaves all else that NFC changes, because those are other characters, such as the
 * signs of kelvin and ohm, that have another number of bytes or another meaning for a program.
 */
export function compose(text: string): string {
  if (!NON_ASCII.test(text) || MANY_MARKS.test(text)) return text
  return text.replace(LETTER_WITH_MARKS, (letter) =>
    [...letter].every((character) => character.normalize('NFC') === character) ? letter.normalize('NFC') : letter,
  )
}

const REFUSAL =
  /^(?:i(?:'|’)?m sorry,? (?:but )?i (?:can|won|am not|cannot)|i(?:'|’)?m (?:unable|not able) to|sorry, (?:but )?i (?:can|won)|i (?:cannot|can(?:'|’)t|won(?:'|’)t|will not) (?:help|assist|provide|comply|do that|create|write|answer|fulfill)|as an ai(?: language model)?,? i (?:can|am not|do not))/i
const MAX_REFUSAL_LENGTH = 600

export function isStorable(completion: Completion): boolean {
  if (completion.finish !== 'stop' && completion.finish !== 'stop-sequence') return false
  if (!completion.parts.every(isReplayable)) return false
  const text = completion.parts
    .map((part) => (part.type === 'text' ? part.text : ''))
    .join('')
    .trim()
  return text !== '' && !isRefusal(completion, text)
}

/** Citations are lost if a response is replayed in a different form, such as a stream. */
function isReplayable(part: Part): boolean {
  const { citations, annotations } = part.native?.value ?? {}
  return (
    (part.type === 'text' || part.type === 'thinking') &&
    ![citations, annotations].some((list) => asArray(list).length > 0)
  )
}

function isRefusal(completion: Completion, text: string): boolean {
  if (completion.parts.some((part) => part.native?.value['type'] === 'refusal')) return true
  const hasRefusal = asArray(completion.native?.value['choices']).some((choice) => {
    const refusal = asObject(asObject(choice)?.['message'])?.['refusal']
    return typeof refusal === 'string' && refusal !== ''
  })
  return hasRefusal || (text.length <= MAX_REFUSAL_LENGTH && REFUSAL.test(text))
}

/** A false match only shortens the lifetime of an entry. */
const LATIN_WORDS = [
  'today|tonight|tomorrow|yesterday|now|nowadays|current|currently|latest|newest|recent|recently|upcoming|weather|forecast|news',
  'stock price|share price|bitcoin|exchange rate|the score|last night|happening|these days|is it (?:raining|snowing)',
  'what (?:day|date) is|(?:what|which) year is (?:it|this)|next (?:bus|train|flight|game|match)',
  'at the moment|so far|what time|time is it|(?:this|next|last) (?:morning|week|weekend|month|quarter|year)',
  'heute|gestern|morgen|jetzt|aktuell(?:e[mnrs]?)?|derzeit|gerade|wie spät|neueste[nrs]?|wetter|nachrichten|uhrzeit',
  "aujourd['’]hui|hier|demain|maintenant|actuel|actuelle|actuellement|derni(?:er|ère)s?|récente?s?|quelle heure|météo",
  'hoy|ayer|mañana|ahora|actual|actualmente|últim[oa]s?|recientes?|qué hora|noticias|hoje|ontem|amanhã|agora|atual|atualmente|recentes?|que horas|notícias',
  'oggi|ieri|domani|adesso|ora|attuale|ultim[aeio]|notizie|che or[ae]|vandaag|gisteren|nu|laatste|hoe laat|nieuws|dzisiaj|teraz|bugün|şimdi|idag|nyheter',
].join('|')
const NON_LATIN_WORDS =
  'сегодня|вчера|завтра|сейчас|последн|текущ|новост|недавн|нынешн|который час|今天|今日|昨天|明天|现在|現在|最新|目前|今の|最近|今年|今何時|几点|幾點|新闻|新聞|ニュース|오늘|지금|현재|최신|최근|올해|몇 시|اليوم|الآن|الأخير|أخبار|كم الساعة|आज|अभी'
const TIME_SENSITIVE = new RegExp(`(?<!\\p{L})(?:${LATIN_WORDS})(?!\\p{L})|${NON_LATIN_WORDS}`, 'iu')

const SEARCHED_LENGTH = 2000

export function isTimeSensitive(text: string): boolean {
  const isLong = text.length > SEARCHED_LENGTH * 2
  return TIME_SENSITIVE.test(isLong ? `${text.slice(0, SEARCHED_LENGTH)} ${text.slice(-SEARCHED_LENGTH)}` : text)
}
