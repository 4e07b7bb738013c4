import { fileKindOf } from '../response-fields.ts'
import type { Completion, StreamPart, FinishReason, SseEvent, StreamChunk } from '../../core/completion.ts'
import { NO_USAGE, type Usage } from '../../core/money.ts'
import { type JsonObject, type JsonNesting, readNesting, isJsonObject, asArray } from '../../core/json.ts'
import { exactText, replaceByTexts, serializeExactly } from '../../core/exact-json.ts'
import { memberText, type RawChanges, setMembers } from '../../core/splice-json.ts'
import type { WriteMetrics, StreamWriter } from '../format.ts'
import { totalTokens, WIRE_REASONS, writeMessageUsage } from '../usage.ts'
import type { Part } from '../../core/prompt.ts'
import { GatewayError } from '../../core/errors.ts'
import { readToolInput } from './request-writer.ts'

/** Returns the name of a file, which the content of a response cannot contain. */
export function omittedName(part: Part | StreamPart): string | undefined {
  const kind = fileKindOf(part)
  return kind && `content (${kind})`
}

/** Forwards events of this format. Holds the last `message_delta` until the bill is known. */
export class MessageStreamWriter implements StreamWriter {
  readonly #blocks = new BlockWriter()
  #isStarted = false
  #usage: Usage = NO_USAGE
  #finish: FinishReason = 'stop'
  #stopSequence: string | undefined
  readonly #omitted = new Set<string>()
  #heldDelta: SseEvent | undefined
  #heldStop: SseEvent | undefined

  write({ parts, native }: StreamChunk): readonly SseEvent[] {
    for (const part of parts) this.#observe(part)
    return native?.dialect === 'messages' ? this.#forward(native.event) : parts.flatMap((part) => this.#write(part))
  }

  end(writeMetrics: WriteMetrics): readonly SseEvent[] {
    const stop = this.#heldStop ?? toSseEvent({ type: 'message_stop' })
    const metrics = writeMetrics('summary')
    const lastDelta = this.#lastDelta(this.#omitted.size > 0 ? { ...metrics, ignored: [...this.#omitted] } : metrics)
    return [...this.#start(), ...this.#blocks.finish(), lastDelta, stop]
  }

  #observe(part: StreamPart): void {
    if (part.type === 'usage') this.#usage = { ...this.#usage, ...part.usage }
    if (part.type !== 'response-end') return
    this.#finish = part.finish
    this.#stopSequence = part.stopSequence
  }

  /** A held `message_delta` was not the last one if an event other than `ping` or `message_stop` follows. */
  #forward(event: SseEvent): readonly SseEvent[] {
    if (event.event === 'ping') return [event]
    this.#isStarted = true
    if (event.event === 'message_stop') {
      this.#heldStop = event
      return []
    }
    const released = this.#heldDelta === undefined ? [] : [this.#heldDelta]
    this.#heldDelta = event.event === 'message_delta' ? event : undefined
    return this.#heldDelta === undefined ? [...released, event] : released
  }

  #write(part: StreamPart): readonly SseEvent[] {
    const omitted = omittedName(part)
    if (omitted !== undefined) this.#omitted.add(omitted)
    switch (part.type) {
      case 'response-start':
        return this.#start(part.id, part.model)
      case 'usage':
      case 'response-end':
      case 'done':
        return []
      case 'image':
      case 'document':
        return this.#start()
      default:
        return [...this.#start(), ...this.#blocks.write(part)]
    }
  }

  /** The counts are zero, because `message_delta` contains the actual counts and some clients add both. */
  #start(id = '', model = ''): readonly SseEvent[] {
    if (this.#isStarted) return []
    this.#isStarted = true
    const message = createMessage({ id, model }, { usage: { input_tokens: 0, output_tokens: 0 } })
    return [toSseEvent({ type: 'message_start', message })]
  }

  #lastDelta(svc_metrics: JsonObject): SseEvent {
    const held = this.#heldDelta
    if (held === undefined) {
      const delta = { stop_reason: WIRE_REASONS[this.#finish].message, stop_sequence: this.#stopSequence ?? null }
      return toSseEvent({ type: 'message_delta', delta, usage: writeMessageUsage(this.#usage), svc_metrics })
    }
    return { ...held, data: setMembers(held.data, billChanges(held.data, this.#usage, svc_metrics)) }
  }
}

interface Block {
  readonly content: JsonObject
  readonly deltas: JsonObject[]
  /** Returns true when the input of a tool call is complete. Undefined for a block that ends when the next one begins. */
  readonly endsInput: ((piece: string) => boolean) | undefined
  isComplete: boolean
  isStarted: boolean
  hasDeltas: boolean
  isClosed: boolean
}

class BlockWriter {
  /** Blocks that are not closed. Only one block may be open for the client, so deltas of later blocks are queued. */
  readonly #queue: Block[] = []
  readonly #calls = new Map<number, Block>()
  #current: { readonly kind: 'text' | 'thinking'; readonly block: Block } | undefined
  #index = 0

  write(part: StreamPart): readonly SseEvent[] {
    this.#add(part)
    return this.#flush(false)
  }

  finish(): readonly SseEvent[] {
    return this.#flush(true)
  }

  #add(part: StreamPart): void {
    switch (part.type) {
      case 'text-start':
        this.#current = undefined
        return
      case 'text-delta':
        if (part.text !== '') this.#continue('text').deltas.push({ type: 'text_delta', text: part.text })
        return
      case 'thinking-start':
        this.#current = undefined
        if (part.redacted !== undefined) this.#addBlock({ type: 'redacted_thinking', data: part.redacted })
        return
      case 'thinking-delta':
        if (part.text !== undefined && part.text !== '')
          this.#continue('thinking').deltas.push({ type: 'thinking_delta', thinking: part.text })
        if (part.signature !== undefined)
          this.#continue('thinking').deltas.push({ type: 'signature_delta', signature: part.signature })
        return
      case 'tool-call-start': {
        const content = { type: 'tool_use', id: part.id, name: part.name, input: {} }
        this.#calls.set(part.index, this.#addBlock(content, createJsonEndDetector()))
        return
      }
      case 'tool-call-delta':
        addInput(this.#calls.get(part.index), part.input)
        return
      case 'opaque':
        if (part.native.dialect === 'messages') this.#addNative(part.native.value)
        return
      default:
    }
  }

  /** The first delta starts the block, so a `text-start` without text adds no block. */
  #continue(kind: 'text' | 'thinking'): Block {
    if (this.#current?.kind === kind) return this.#current.block
    const content = kind === 'text' ? { type: 'text', text: '' } : { type: 'thinking', thinking: '', signature: '' }
    const block = this.#addBlock(content)
    this.#current = { kind, block }
    return block
  }

  #addBlock(content: JsonObject, endsInput?: Block['endsInput']): Block {
    const isComplete = endsInput === undefined
    const block = { content, deltas: [], endsInput, isComplete, isStarted: false, hasDeltas: false, isClosed: false }
    this.#queue.push(block)
    this.#current = undefined
    return block
  }

  #addNative(value: JsonObject): void {
    if (isDelta(value)) {
      this.#queue.at(-1)?.deltas.push(value)
      return
    }
    const { input } = value
    const hasInput = isJsonObject(input) && Object.keys(input).length > 0
    const block = this.#addBlock(hasInput ? { ...value, input: {} } : value)
    if (hasInput) block.deltas.push({ type: 'input_json_delta', partial_json: exactText(input) })
  }

  #flush(isEnd: boolean): readonly SseEvent[] {
    const events: SseEvent[] = []
    for (let head = this.#queue[0]; head !== undefined; head = this.#queue[0]) {
      events.push(...flushBlock(head, this.#index))
      const canClose = isEnd || (head.isComplete && this.#queue.length > 1)
      if (!canClose) break
      events.push(...closingEvents(head, this.#index))
      head.isClosed = true
      this.#queue.shift()
      this.#index++
    }
    return events
  }
}

function addInput(block: Block | undefined, input: string): void {
  if (block?.endsInput === undefined || input === '') return
  if (block.isClosed) {
    if (input.trim() === '') return
    throw new GatewayError('upstream', 'The model provider continued the input of a tool call that had ended.')
  }
  block.deltas.push({ type: 'input_json_delta', partial_json: input })
  block.isComplete = block.endsInput(input)
}

function flushBlock(block: Block, index: number): readonly SseEvent[] {
  const events: SseEvent[] = []
  if (!block.isStarted) events.push(toSseEvent({ type: 'content_block_start', index, content_block: block.content }))
  block.isStarted = true
  for (const delta of block.deltas) events.push(toSseEvent({ type: 'content_block_delta', index, delta }))
  block.hasDeltas ||= block.deltas.length > 0
  block.deltas.length = 0
  return events
}

/** A call without arguments gets the input `{}`, because clients parse the input as JSON. */
function closingEvents(block: Block, index: number): readonly SseEvent[] {
  const stop = toSseEvent({ type: 'content_block_stop', index })
  if (block.endsInput === undefined || block.hasDeltas) return [stop]
  const delta = { type: 'input_json_delta', partial_json: '{}' }
  return [toSseEvent({ type: 'content_block_delta', index, delta }), stop]
}

/** Names the event, because clients ignore events without a name. */
export function toSseEvent(data: JsonObject & { readonly type: string }): SseEvent {
  return { event: data.type, data: JSON.stringify(data) }
}

function createMessage({ id, model }: Pick<Completion, 'id' | 'model'>, fields: JsonObject): JsonObject {
  const end = { stop_reason: null, stop_sequence: null }
  return { id: messageId(id), type: 'message', role: 'assistant', model, content: [], ...end, ...fields }
}

export function messageId(id: string): string {
  return id.startsWith('msg_') ? id : `msg_${id.replace(/^chatcmpl-/, '')}`
}

export function writeCompletion(completion: Completion, writeMetrics: WriteMetrics): string {
  const { native } = completion
  const isNative = native?.dialect === 'messages'
  const text =
    (isNative ? native.text : undefined) ??
    (isNative ? replaceByTexts(native.value) : serializeExactly(() => messageOf(completion)))
  const id = isNative && completion.id !== '' ? { id: JSON.stringify(completion.id) } : {}
  return setMembers(text, { ...id, ...billChanges(text, completion.usage ?? NO_USAGE, writeMetrics('summary')) })
}

function billChanges(text: string, usage: Usage, metrics: JsonObject): RawChanges {
  const total_tokens = JSON.stringify(totalTokens(usage))
  return {
    usage: setMembers(memberText(text, 'usage') ?? '{}', { total_tokens }),
    svc_metrics: JSON.stringify(metrics),
  }
}

function messageOf(completion: Completion): JsonObject {
  return createMessage(completion, {
    content: writeResponseBlocks(completion.parts),
    stop_reason: WIRE_REASONS[completion.finish].message,
    stop_sequence: completion.stopSequence ?? null,
    usage: writeMessageUsage(completion.usage ?? NO_USAGE),
  })
}

/** Returns a function that reports whether the pieces so far contain a whole JSON value. */
function createJsonEndDetector(): (piece: string) => boolean {
  const nesting: JsonNesting = { depth: 0, isInString: false, isEscaped: false }
  let isOpened = false
  return (piece) => {
    isOpened = readNesting(nesting, piece) > 0 || isOpened
    return isOpened && nesting.depth <= 0
  }
}

/** Citations arrive as separate deltas and are added to their text. */
function writeResponseBlocks(parts: readonly Part[]): readonly JsonObject[] {
  const blocks: JsonObject[] = []
  for (const part of parts) {
    const block = writeResponseBlock(part)
    const last = blocks.at(-1)
    if (block !== undefined && !isDelta(block)) blocks.push(block)
    if (block?.['type'] === 'citations_delta' && isJsonObject(block['citation']) && last?.['type'] === 'text')
      blocks[blocks.length - 1] = { ...last, citations: [...asArray(last['citations']), block['citation']] }
  }
  return blocks
}

function writeResponseBlock(part: Part): JsonObject | undefined {
  if (part.native?.dialect === 'messages') return part.native.value
  switch (part.type) {
    case 'text':
      return part.text === '' ? undefined : { type: 'text', text: part.text }
    case 'tool-call':
      return { type: 'tool_use', id: part.id, name: part.name, input: readToolInput(part.input) }
    case 'thinking':
      return part.redacted === true
        ? { type: 'redacted_thinking', data: part.text }
        : { type: 'thinking', thinking: part.text, signature: part.signature ?? '' }
    default:
      return undefined
  }
}

function isDelta(value: JsonObject): boolean {
  return typeof value['type'] === 'string' && value['type'].endsWith('_delta')
}
