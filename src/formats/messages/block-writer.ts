import type { AnswerEvent, Frame } from '../../core/answer.ts'
import { GatewayError } from '../../core/errors.ts'
import { isJsonObject, readNesting, type JsonNesting, type JsonObject } from '../../core/json.ts'

/** Writes content blocks one after another, even if the deltas of several blocks are interleaved. */
export interface BlockWriter {
  take(event: AnswerEvent): readonly Frame[]
  finish(): readonly Frame[]
}

interface Block {
  /** The block in `content_block_start`. */
  readonly content: JsonObject
  readonly deltas: JsonObject[]
  /** Returns true when the input of a tool call is complete. Absent for a block that ends when another block begins. */
  readonly inputEnd?: (piece: string) => boolean
  isWhole: boolean
  isStarted: boolean
  hasDeltas: boolean
  isClosed: boolean
}

interface Writing {
  /** Open blocks. Only one block may be open for the client, so deltas of later blocks are queued. */
  readonly queue: Block[]
  readonly calls: Map<number, Block>
  /** The block that the next text or thought of the same kind continues. */
  current: { readonly kind: 'text' | 'thinking'; readonly block: Block } | undefined
  index: number
}

export function blockWriter(): BlockWriter {
  const writing: Writing = { queue: [], calls: new Map(), current: undefined, index: 0 }
  return {
    take: (event) => {
      takeEvent(writing, event)
      return flush(writing, false)
    },
    finish: () => flush(writing, true),
  }
}

function takeEvent(writing: Writing, event: AnswerEvent): void {
  switch (event.type) {
    case 'text-start':
      writing.current = undefined
      return
    case 'text-delta':
      if (event.text !== '') growingBlock(writing, 'text').deltas.push({ type: 'text_delta', text: event.text })
      return
    case 'thinking-start':
      writing.current = undefined
      if (event.redacted !== undefined) push(writing, { type: 'redacted_thinking', data: event.redacted })
      return
    case 'thinking-delta':
      growingBlock(writing, 'thinking').deltas.push(...thoughts(event))
      return
    case 'tool-call-start': {
      const content = { type: 'tool_use', id: event.id, name: event.name, input: {} }
      writing.calls.set(event.index, push(writing, content, jsonEnd()))
      return
    }
    case 'tool-call-delta':
      takeInput(writing.calls.get(event.index), event.input)
      return
    case 'opaque':
      if (event.native.dialect === 'anthropic') takeNative(writing, event.native.value)
      return
    default:
  }
}

/** Adds a delta to a block. The first delta starts the block, so no block is empty. */
function growingBlock(writing: Writing, kind: 'text' | 'thinking'): Block {
  if (writing.current?.kind === kind) return writing.current.block
  const content = kind === 'text' ? { type: 'text', text: '' } : { type: 'thinking', thinking: '', signature: '' }
  const block = push(writing, content)
  writing.current = { kind, block }
  return block
}

function push(writing: Writing, content: JsonObject, inputEnd?: Block['inputEnd']): Block {
  const block: Block = {
    content,
    deltas: [],
    ...(inputEnd === undefined ? {} : { inputEnd }),
    isWhole: inputEnd === undefined,
    isStarted: false,
    hasDeltas: false,
    isClosed: false,
  }
  writing.queue.push(block)
  writing.current = undefined
  return block
}

function thoughts(event: Extract<AnswerEvent, { readonly type: 'thinking-delta' }>): readonly JsonObject[] {
  const { text, signature } = event
  return [
    ...(text === undefined || text === '' ? [] : [{ type: 'thinking_delta', thinking: text }]),
    ...(signature === undefined ? [] : [{ type: 'signature_delta', signature }]),
  ]
}

function takeInput(block: Block | undefined, input: string): void {
  if (block?.inputEnd === undefined || input === '') return
  if (block.isClosed) {
    if (input.trim() === '') return
    throw new GatewayError('upstream', 'The model provider continued the input of a tool call that had ended.')
  }
  block.deltas.push({ type: 'input_json_delta', partial_json: input })
  block.isWhole = block.inputEnd(input)
}

/** Adds a block that only this format supports, or a delta of the preceding block. */
function takeNative(writing: Writing, value: JsonObject): void {
  if (isDelta(value)) {
    writing.queue.at(-1)?.deltas.push(value)
    return
  }
  const { input } = value
  if (!isJsonObject(input) || Object.keys(input).length === 0) {
    push(writing, value)
    return
  }
  const block = push(writing, { ...value, input: {} })
  block.deltas.push({ type: 'input_json_delta', partial_json: JSON.stringify(input) })
}

function flush(writing: Writing, isEnd: boolean): readonly Frame[] {
  const frames: Frame[] = []
  for (let head = writing.queue[0]; head !== undefined; head = writing.queue[0]) {
    frames.push(...liveFrames(head, writing.index))
    const canClose = isEnd || (head.isWhole && writing.queue.length > 1)
    if (!canClose) break
    frames.push(...closingFrames(head, writing.index))
    head.isClosed = true
    writing.queue.shift()
    writing.index++
  }
  return frames
}

function liveFrames(block: Block, index: number): readonly Frame[] {
  const frames: Frame[] = []
  if (!block.isStarted) frames.push(frameOf({ type: 'content_block_start', index, content_block: block.content }))
  block.isStarted = true
  for (const delta of block.deltas) frames.push(frameOf({ type: 'content_block_delta', index, delta }))
  block.hasDeltas ||= block.deltas.length > 0
  block.deltas.length = 0
  return frames
}

/** Returns the last events of a block. A call without arguments gets the input `{}`, as in the vendor's streams. */
function closingFrames(block: Block, index: number): readonly Frame[] {
  const stop = frameOf({ type: 'content_block_stop', index })
  if (block.inputEnd === undefined || block.hasDeltas) return [stop]
  const delta = { type: 'input_json_delta', partial_json: '{}' }
  return [frameOf({ type: 'content_block_delta', index, delta }), stop]
}

/** Returns a frame with the event name. Clients ignore events without a name. */
export function frameOf(data: JsonObject & { readonly type: string }): Frame {
  return { event: data.type, data: JSON.stringify(data) }
}

/** Returns a function that reads the chunks of a JSON object. The function returns true once the object is closed. */
function jsonEnd(): (piece: string) => boolean {
  const nesting: JsonNesting = { depth: 0, isInString: false, isEscaped: false }
  let isOpened = false
  return (piece) => {
    isOpened = readNesting(nesting, piece) > 0 || isOpened
    return isOpened && nesting.depth <= 0
  }
}

/** Returns true for an opaque delta, and false for an opaque block. */
export function isDelta(value: JsonObject): boolean {
  return typeof value['type'] === 'string' && value['type'].endsWith('_delta')
}
