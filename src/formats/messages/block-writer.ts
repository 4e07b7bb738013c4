import type { StreamPart, SseEvent } from '../../core/answer.ts'
import { GatewayError } from '../../core/errors.ts'
import { isJsonObject, readNesting, type JsonNesting, type JsonObject } from '../../core/json.ts'

/** Writes content blocks one after another, even if the deltas of several blocks are interleaved. */
export interface BlockWriter {
  write(part: StreamPart): readonly SseEvent[]
  finish(): readonly SseEvent[]
}

interface Block {
  readonly content: JsonObject
  readonly deltas: JsonObject[]
  /**
   * Returns true when the input of a tool call is complete. Absent for a block that ends when the next block begins.
   */
  readonly endsInput?: (piece: string) => boolean
  isComplete: boolean
  isStarted: boolean
  hasDeltas: boolean
  isClosed: boolean
}

interface BlockWriterState {
  /** Blocks that are not closed. Only one block may be open for the client, so deltas of later blocks are queued. */
  readonly queue: Block[]
  readonly calls: Map<number, Block>
  /** The block that the next delta of the same kind continues. */
  current: { readonly kind: 'text' | 'thinking'; readonly block: Block } | undefined
  index: number
}

export function createBlockWriter(): BlockWriter {
  const state: BlockWriterState = { queue: [], calls: new Map(), current: undefined, index: 0 }
  return {
    write: (part) => {
      addPart(state, part)
      return flush(state, false)
    },
    finish: () => flush(state, true),
  }
}

function addPart(state: BlockWriterState, part: StreamPart): void {
  switch (part.type) {
    case 'text-start':
      state.current = undefined
      return
    case 'text-delta':
      if (part.text !== '') continueBlock(state, 'text').deltas.push({ type: 'text_delta', text: part.text })
      return
    case 'thinking-start':
      state.current = undefined
      if (part.redacted !== undefined) addBlock(state, { type: 'redacted_thinking', data: part.redacted })
      return
    case 'thinking-delta':
      continueBlock(state, 'thinking').deltas.push(...thinkingDeltas(part))
      return
    case 'tool-call-start': {
      const content = { type: 'tool_use', id: part.id, name: part.name, input: {} }
      state.calls.set(part.index, addBlock(state, content, createJsonEndDetector()))
      return
    }
    case 'tool-call-delta':
      addInput(state.calls.get(part.index), part.input)
      return
    case 'opaque':
      if (part.native.dialect === 'anthropic') addNative(state, part.native.value)
      return
    default:
  }
}

/** The first delta starts the block, so no block is empty. */
function continueBlock(state: BlockWriterState, kind: 'text' | 'thinking'): Block {
  if (state.current?.kind === kind) return state.current.block
  const content = kind === 'text' ? { type: 'text', text: '' } : { type: 'thinking', thinking: '', signature: '' }
  const block = addBlock(state, content)
  state.current = { kind, block }
  return block
}

function addBlock(state: BlockWriterState, content: JsonObject, endsInput?: Block['endsInput']): Block {
  const block: Block = {
    content,
    deltas: [],
    ...(endsInput === undefined ? {} : { endsInput }),
    isComplete: endsInput === undefined,
    isStarted: false,
    hasDeltas: false,
    isClosed: false,
  }
  state.queue.push(block)
  state.current = undefined
  return block
}

function thinkingDeltas(part: Extract<StreamPart, { readonly type: 'thinking-delta' }>): readonly JsonObject[] {
  const { text, signature } = part
  return [
    ...(text === undefined || text === '' ? [] : [{ type: 'thinking_delta', thinking: text }]),
    ...(signature === undefined ? [] : [{ type: 'signature_delta', signature }]),
  ]
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

/** Adds a block that only this format supports, or a delta of the preceding block. */
function addNative(state: BlockWriterState, value: JsonObject): void {
  if (isDelta(value)) {
    state.queue.at(-1)?.deltas.push(value)
    return
  }
  const { input } = value
  if (!isJsonObject(input) || Object.keys(input).length === 0) {
    addBlock(state, value)
    return
  }
  const block = addBlock(state, { ...value, input: {} })
  block.deltas.push({ type: 'input_json_delta', partial_json: JSON.stringify(input) })
}

function flush(state: BlockWriterState, isEnd: boolean): readonly SseEvent[] {
  const events: SseEvent[] = []
  for (let head = state.queue[0]; head !== undefined; head = state.queue[0]) {
    events.push(...flushBlock(head, state.index))
    const canClose = isEnd || (head.isComplete && state.queue.length > 1)
    if (!canClose) break
    events.push(...closingEvents(head, state.index))
    head.isClosed = true
    state.queue.shift()
    state.index++
  }
  return events
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

/** A call without arguments gets the input `{}`, as in the vendor's streams. */
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

/** Returns a function that receives JSON in pieces and returns true once the object is closed. */
function createJsonEndDetector(): (piece: string) => boolean {
  const nesting: JsonNesting = { depth: 0, isInString: false, isEscaped: false }
  let isOpened = false
  return (piece) => {
    isOpened = readNesting(nesting, piece) > 0 || isOpened
    return isOpened && nesting.depth <= 0
  }
}

export function isDelta(value: JsonObject): boolean {
  return typeof value['type'] === 'string' && value['type'].endsWith('_delta')
}
