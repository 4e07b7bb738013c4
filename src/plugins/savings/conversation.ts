import { textOfMessage } from '../../core/messages.ts'
import { asObject, type Json } from '../../core/json.ts'
import {
  type Message,
  type Native,
  type Part,
  type Prompt,
  type Role,
  type Source,
  type TextSource,
  textOfPart,
} from '../../core/prompt.ts'
import { digestText } from '../../core/cache.ts'
import { runSteps, type Steps } from '../../core/steps.ts'
import { sha256 } from '#hash'
import { type Query, termsOf } from './keywords.ts'
import { type Segment, type SplitConversation, splitInSteps } from './segments.ts'

export type { Segment } from './segments.ts'

/** A prompt, divided into the parts that tiers keep or omit together. */
export interface Conversation {
  readonly prompt: Prompt
  readonly system: readonly Message[]
  readonly turns: SplitConversation
  readonly segments: readonly Segment[]
  readonly prefixHashes: PrefixHashes
}

const conversations = new WeakMap<Prompt, Conversation>()

/** Cached per prompt, because several tiers of a request need the conversation. */
export function conversationOf(prompt: Prompt): Conversation {
  return runSteps(readConversation(prompt))
}

/** As `conversationOf`, in steps. */
export function* readConversation(prompt: Prompt): Steps<Conversation> {
  const cached = conversations.get(prompt)
  if (cached !== undefined) return cached
  const turns = yield* splitInSteps(prompt.messages)
  const segments = [...turns.old, ...turns.live]
  const system = prompt.messages.filter((message) => message.role === 'system')
  const conversation = { prompt, system, turns, segments, prefixHashes: hashesOfSegments(prompt, segments) }
  conversations.set(prompt, conversation)
  return conversation
}

/** Hashes of the first messages or segments of a conversation. A prefix has the same hash on every turn. */
export interface PrefixHashes {
  /** Returns the hash of the first `count` messages or segments, in 64 hex digits. */
  at(count: number): string
}

export interface MessageHashes extends PrefixHashes {
  /** Hashes of some prefixes, with about `CHECKPOINT_LENGTH` characters between two of them. */
  checkpoints(): readonly Checkpoint[]
}

interface Checkpoint {
  readonly count: number
  readonly hash: string
}

function hashesOfSegments(prompt: Prompt, segments: readonly Segment[]): PrefixHashes {
  const first = segments[0]?.indexes[0] ?? prompt.messages.length
  return { at: (count) => messageHashesOf(prompt).at((segments[count - 1]?.indexes.at(-1) ?? first - 1) + 1) }
}

const hashesByPrompt = new WeakMap<Prompt, MessageHashes>()

/** Cached per prompt, because the tiers, the prompt-cache markers and the record of what was sent need them. */
export function messageHashesOf(prompt: Prompt): MessageHashes {
  const cached = hashesByPrompt.get(prompt)
  if (cached !== undefined) return cached
  const hashes = createPrefixHashes(prompt.messages)
  hashesByPrompt.set(prompt, hashes)
  return hashes
}

const CHECKPOINT_LENGTH = 8000

/** Hashes each prefix from the preceding checkpoint, so the total cost is linear in the length of the conversation. */
export function createPrefixHashes(messages: readonly Message[]): MessageHashes {
  const inputs: string[] = []
  const checkpoints: Checkpoint[] = [{ count: 0, hash: sha256('') }]
  let length = 0

  /** Continues up to the message `count`, because most callers need no later prefix. */
  const build = (count: number): void => {
    for (const message of messages.slice(inputs.length, count)) {
      const input = hashInputOfMessage(message)
      inputs.push(input)
      length += input.length
      if (length < CHECKPOINT_LENGTH) continue
      checkpoints.push({ count: inputs.length, hash: extendHash(checkpoints.at(-1), inputs, inputs.length) })
      length = 0
    }
  }

  return {
    at(count) {
      build(count)
      const last = checkpoints.findLast((checkpoint) => checkpoint.count <= count)
      return last?.count === count ? last.hash : extendHash(last, inputs, count)
    },
    checkpoints() {
      build(messages.length)
      return checkpoints.slice(1)
    },
  }
}

function extendHash(last: Checkpoint | undefined, inputs: readonly string[], end: number): string {
  return sha256(`${last?.hash}\u0002${inputs.slice(last?.count, end).join('\u0002')}`)
}

/**
 * Includes all that can change how a vendor reads the message, and so whether its prompt cache has it. Ignores markers of
 * the prompt cache, which callers move on every turn.
 */
export function hashInputOfMessage({ role, parts, native }: Message): string {
  return `${role}\u0003${parts.map(hashInputOfPart).join('\u0003')}${furtherFieldsOf(native, role)}`
}

function hashInputOfPart(part: Part): string {
  switch (part.type) {
    case 'text':
    case 'thinking':
      return `${part.type}\u0004${part.text}${furtherFieldsOf(part.native)}`
    case 'image':
    case 'document':
      return `${part.type}\u0004${hashInputOfSource(part.source)}${mediaFieldsOf(part.native)}`
    case 'tool-call':
      return `call\u0004${part.id}\u0004${part.name}\u0004${part.input}`
    case 'tool-result':
      return `result\u0004${part.callId}\u0004${part.failed}\u0004${part.content.map(hashInputOfPart).join('\u0005')}`
    case 'opaque':
      return `opaque\u0004${JSON.stringify(part.native.value, (name, value: Json) => (name === MARKER ? undefined : value))}`
  }
}

const MARKER = 'cache_control'
/** Fields of messages and parts that the hash covers without their native form, or that mark the end of a prefix. */
const COVERED_FIELDS: ReadonlySet<string> = new Set(
  `role type content items text thinking signature data tool_calls tool_call_id ${MARKER}`.split(' '),
)

/** Returns an empty string for most messages and parts. The role of a received message can be `developer`. */
function furtherFieldsOf(native: Native | undefined, role?: Role): string {
  if (native === undefined) return ''
  const received = native.value['role']
  let fields = role === undefined || received === undefined || received === role ? '' : `\u0004${String(received)}`
  for (const name in native.value) {
    if (!COVERED_FIELDS.has(name)) fields += `\u0004${name}\u0004${JSON.stringify(native.value[name])}`
  }
  return fields
}

/** Fields beside the content of a file. `image_url` is an object in the chat format. */
function mediaFieldsOf(native: Native | undefined): string {
  if (native === undefined) return ''
  const { detail = asObject(native.value['image_url'])?.['detail'], title, context, citations, filename } = native.value
  const fields = [detail, title, context, citations, filename]
  return fields.every((field) => field === undefined) ? '' : `\u0004${JSON.stringify(fields)}`
}

function hashInputOfSource(source: Source | TextSource): string {
  switch (source.type) {
    case 'base64':
      return digestText(source, source.data, sha256)
    case 'url':
      return source.url
    case 'file':
      return source.id
    case 'text':
      return source.text
  }
}

/** A message with more distinct terms is a document, not a question. */
const MAX_QUESTION_TERMS = 40
const MAX_FOLLOW_UP_TERMS = 1
const MAX_SHORT_QUESTION_TERMS = 7
const REFERENCE =
  /\b(?:it|its|they|them|their|theirs|that|this|these|those|he|him|his|she|her|hers|there|then|one|ones|same|former|latter|above|previous|earlier|first|second|third|last|other|another|again|else|too|instead)\b/i
/** A question that contains a name or a quotation can be understood without the earlier question. */
const NAME_OR_QUOTATION = /[\p{Ll}\d,;:] +\p{Lu}|["“`]/u
const EARLIER_QUESTION_WEIGHT = 0.4
const EARLIER_RESPONSE_WEIGHT = 0.15
const EARLIER_TOPIC_WEIGHT = 0.3
const MAX_STEPS = 5
const MAX_TERM_WEIGHT = 2
const SUGGESTED_TERM_WEIGHT = 0.4
const MAX_READ_LENGTH = 8000

export function queryOf(turns: SplitConversation, suggested: readonly string[] = []): Query {
  const query = new Map<number, number>()
  const add = (text: string, weight: number): void => {
    for (const term of termsOf(text.slice(0, MAX_READ_LENGTH))) {
      query.set(term, Math.min(MAX_TERM_WEIGHT, (query.get(term) ?? 0) + weight))
    }
  }
  const addNew = (text: string, weight: number): void => {
    for (const term of new Set(termsOf(text.slice(0, MAX_READ_LENGTH)))) {
      if (!query.has(term)) query.set(term, weight)
    }
  }
  const [first, ...steps] = turns.live
  const question = first === undefined ? '' : textOfSegment(first)
  add(question, 1)
  const isShort = steps.length === 0 && query.size <= MAX_SHORT_QUESTION_TERMS
  const earlier = isShort ? earlierExchange(turns.old) : undefined
  if (earlier !== undefined) {
    const needsEarlier = isFollowUp(question, query.size)
    addNew(textOfSegment(earlier.question), needsEarlier ? EARLIER_QUESTION_WEIGHT : EARLIER_TOPIC_WEIGHT)
    if (needsEarlier) addNew(textOfSegment(earlier.response), EARLIER_RESPONSE_WEIGHT)
  }
  for (const step of steps.slice(-MAX_STEPS)) add(textAndCallsOf(step), 1)
  for (const term of suggested) add(term, SUGGESTED_TERM_WEIGHT)
  return query
}

function isFollowUp(question: string, termCount: number): boolean {
  if (termCount <= MAX_FOLLOW_UP_TERMS) return true
  return REFERENCE.test(question) && !NAME_OR_QUOTATION.test(question)
}

export function textOfSegment({ messages }: Segment): string {
  return messages.map(textOfMessage).join('\n')
}

function textAndCallsOf({ messages }: Segment): string {
  const parts = messages.flatMap((message) => message.parts)
  const textsAndCalls = parts.filter((part) => part.type === 'text' || part.type === 'tool-call')
  return textsAndCalls.map(textOfPart).join('\n')
}

function earlierExchange(
  old: readonly Segment[],
): { readonly question: Segment; readonly response: Segment } | undefined {
  const questionIndex = old.findLastIndex(
    (segment, index) => segment.kind === 'user' && old[index + 1]?.kind === 'assistant',
  )
  const question = old[questionIndex]
  const response = old[questionIndex + 1]
  if (question === undefined || response === undefined) return undefined
  return new Set(termsOf(textOfSegment(question).slice(0, MAX_READ_LENGTH))).size <= MAX_QUESTION_TERMS
    ? { question, response }
    : undefined
}

/** Longer messages are documents, which may match `STANDING_INSTRUCTION` by chance. */
const MAX_MATCHED_LENGTH = 1500

/** A ranking can miss standing instructions, because they may share no words with the question. */
const STANDING_INSTRUCTION = new RegExp(
  [
    String.raw`\b(?:always|never|from now on|going forward|every time|each time|whenever|by default|keep in mind|be sure to)\b`,
    String.raw`\bremember (?:that|to|this|my|i|we)\b|\bdo(?:n['’]t| not) ever\b|\bno (?:more|longer)\b`,
    String.raw`\bi(?:['’]d)? (?:prefer|rather|hate|dislike|like (?:it|my|your|all|answers))\b|\bi(?:['’]m| am) (?:allergic|vegan|vegetarian)\b`,
    String.raw`\bi (?:want|need) (?:you to|all|every)\b|\bmy (?:name|pronouns|time ?zone|budget|deadline|preference)\b|\b(?:call|address) me\b`,
    String.raw`\b(?:must|should) (?:always|never|only)\b|\bonly (?:use|answer|reply|respond|write)\b|\buse only\b|\bstick to\b|\bavoid\b`,
    String.raw`\bplease (?:use|answer|reply|respond|write|keep|stick)\b|\b(?:answer|reply|respond|write) in\b`,
    String.raw`\bstop (?:using|doing|saying|adding)\b|\b(?:immer|niemals|ab jetzt|toujours|jamais|siempre|nunca)\b`,
    '从现在|以后|永远|总是|不要|今後|必ず|いつも',
  ].join('|'),
  'i',
)

export function hasStandingInstruction(segment: Segment): boolean {
  const text = segment.kind === 'user' ? textOfSegment(segment) : ''
  return text.length <= MAX_MATCHED_LENGTH && STANDING_INSTRUCTION.test(text)
}
