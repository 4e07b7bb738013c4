import type { Json, JsonObject } from '../core/json.ts'
import {
  lastUserIndex,
  type Dialect,
  type Message,
  type Native,
  type Part,
  type Prompt,
  type TextPart,
} from '../core/prompt.ts'
import { digestOf } from '../core/sha256.ts'
import { foldText, hasProgramLines } from './fold.ts'

export interface ScopeOptions {
  /** The id of the calling key, or `global` where the operator shares answers between keys. */
  readonly owner: string
  /** The requested model as the caller wrote it. */
  readonly modelName: string
}

/** Where an answer to a prompt is kept. */
export interface Place {
  /** Everything but the text of the last user message, as one hash: what must be equal. */
  readonly scope: string
  /** Names the question within the scope: equal for texts that fold to the same. */
  readonly id: string
  /** The last user message, folded. */
  readonly text: string
  /** False where only the same text may hit. */
  readonly comparable: boolean
}

/** Body fields that the canonical prompt says completely, or that do not change an answer. All others are hashed as they came. */
const READ_FIELDS: Readonly<Record<Dialect, ReadonlySet<string>>> = {
  openai: new Set([
    'model',
    'messages',
    'stream',
    'stream_options',
    'max_tokens',
    'max_completion_tokens',
    'temperature',
    'top_p',
    'top_k',
    'stop',
    'n',
  ]),
  anthropic: new Set([
    'model',
    'messages',
    'system',
    'stream',
    'max_tokens',
    'temperature',
    'top_p',
    'top_k',
    'stop_sequences',
  ]),
  responses: new Set([
    'model',
    'input',
    'instructions',
    'stream',
    'stream_options',
    'max_output_tokens',
    'temperature',
    'top_p',
    'store',
    'metadata',
  ]),
}

/** A longer question is compared by its hash alone: near neighbours of long texts are other texts. */
const LONGEST_COMPARED = 4000

/**
 * The place of a prompt, or undefined for one that must not be cached: without a user message, with several answers at
 * once, or continuing a thread that the upstream holds.
 *
 * A request whose body holds only what both formats say has the same scope on either front. Every further field, tool,
 * image or unknown block is hashed as it came together with its format's name, so that it is found only from there.
 */
export async function placeOf(prompt: Prompt, options: ScopeOptions): Promise<Place | undefined> {
  const index = lastUserIndex(prompt.messages)
  const last = prompt.messages[index]
  if (last === undefined || (prompt.settings.choices ?? 1) > 1 || prompt.native.value['thread'] !== undefined) {
    return undefined
  }
  const text = foldText(textsOf(last).join('\n\n'))
  const frame = createFrame()
  frame.add('owner', options.owner)
  frame.add('model', options.modelName)
  addSettings(frame, prompt)
  prompt.messages.forEach((message, at) => {
    if (at === index) addQuestion(frame, message)
    else addMessage(frame, message)
  })
  const [scope, question] = await Promise.all([digestOf(frame.text()), digestOf(text)])
  const isLive = index < prompt.messages.length - 1 || last.parts.some((part) => part.type !== 'text')
  const comparable = !isLive && text !== '' && text.length <= LONGEST_COMPARED && !hasProgramLines(text)
  return { scope, id: `${scope}.${question}`, text, comparable }
}

/** Joins values so that no two lists of them give the same text. */
interface Frame {
  add(name: string, value: string): void
  text(): string
}

function createFrame(): Frame {
  const pieces: string[] = []
  return {
    add: (name, value) => {
      pieces.push(`${name} ${value.length}:`, value)
    },
    text: () => pieces.join('\n'),
  }
}

function addSettings(frame: Frame, prompt: Prompt): void {
  const { maxTokens, temperature, topP, topK, stop } = prompt.settings
  frame.add(
    'settings',
    JSON.stringify([maxTokens ?? null, temperature ?? null, topP ?? null, topK ?? null, stop ?? null]),
  )
  const { value, dialect } = prompt.native
  const unread: Record<string, Json | undefined> = {}
  for (const field of Object.keys(value)) {
    if (!READ_FIELDS[dialect].has(field) && value[field] !== undefined) unread[field] = value[field]
  }
  if (hasBothLimits(value)) unread['max_tokens'] = value['max_tokens']
  if (topK === undefined && value['top_k'] !== undefined) unread['top_k'] = value['top_k']
  if (Object.keys(unread).length > 0) frame.add(`fields of ${dialect}`, sortedJson(unread))
}

/** The canonical prompt knows one limit; a body may name two. */
function hasBothLimits(body: JsonObject): boolean {
  return body['max_tokens'] !== undefined && body['max_completion_tokens'] !== undefined
}

function addMessage(frame: Frame, message: Message): void {
  if (!isPlain(message)) {
    frame.add('message', nativeText(message.native, message.parts))
    return
  }
  frame.add('from', message.role)
  for (const text of textsOf(message)) frame.add('text', text)
}

/** The last user message without its text. */
function addQuestion(frame: Frame, message: Message): void {
  frame.add('question', extrasOf(message.native, ['role', 'content']))
  for (const part of message.parts) {
    if (part.type !== 'text') frame.add('part', nativeText(part.native, part))
    else if (!isPlainText(part)) frame.add('text of', extrasOf(part.native, ['text']))
  }
}

function isPlain(message: Message): boolean {
  const native = message.native?.value
  const saysOnlyText = message.parts.every((part) => part.type === 'text' && isPlainText(part))
  return (
    saysOnlyText && (native === undefined || (native['role'] === message.role && hasOnly(native, ['role', 'content'])))
  )
}

function isPlainText(part: TextPart): boolean {
  return (
    part.native === undefined || (part.native.value['type'] === 'text' && hasOnly(part.native.value, ['type', 'text']))
  )
}

function hasOnly(value: JsonObject, fields: readonly string[]): boolean {
  return Object.keys(value).every((field) => fields.includes(field) || value[field] === undefined)
}

function extrasOf(native: Native | undefined, without: readonly string[]): string {
  if (native === undefined || hasOnly(native.value, without)) return ''
  const extras = Object.fromEntries(Object.entries(native.value).filter(([field]) => !without.includes(field)))
  return `${native.dialect} ${sortedJson(extras)}`
}

function nativeText(native: Native | undefined, otherwise: Part | readonly Part[]): string {
  return native === undefined ? JSON.stringify(otherwise) : `${native.dialect} ${JSON.stringify(native.value)}`
}

function textsOf(message: Message): readonly string[] {
  return message.parts.flatMap((part) => (part.type === 'text' ? [part.text] : []))
}

/** JSON whose top-level fields stand in order: the order of a body's fields says nothing. */
function sortedJson(value: JsonObject): string {
  return JSON.stringify(Object.entries(value).sort(([left], [right]) => (left < right ? -1 : 1)))
}
