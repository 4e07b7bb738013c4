import {
  NO_USAGE,
  type StreamPart,
  type Completion,
  type FinishReason,
  type StreamChunk,
  type Usage,
} from './answer.ts'
import type { Part, ThinkingPart } from './prompt.ts'

/** Pieces are joined only when the answer is read, because joining after each piece would take quadratic time. */
interface TextBlock {
  readonly type: 'text'
  readonly isRefusal: boolean
  readonly pieces: string[]
}

interface ThinkingBlock {
  readonly type: 'thinking'
  readonly redacted: string | undefined
  readonly pieces: string[]
  readonly signaturePieces: string[]
}

interface ToolCallBlock {
  readonly type: 'tool-call'
  readonly id: string
  readonly name: string
  readonly pieces: string[]
}

type Block = TextBlock | ThinkingBlock | ToolCallBlock | { readonly type: 'opaque'; readonly part: Part }

/** Assembles an answer from its chunks, in linear time. */
export class Collector {
  readonly #blocks: Block[] = []
  readonly #calls = new Map<number, ToolCallBlock>()
  readonly #unmappedTexts: string[] = []
  #id = ''
  #model = ''
  #text: TextBlock | undefined
  #thinking: ThinkingBlock | undefined
  #usage: Partial<Usage> | undefined
  #finish: FinishReason | undefined
  #stopSequence: string | undefined
  #isComplete = false

  add(chunk: StreamChunk): void {
    for (const part of chunk.parts) this.#addPart(part)
    if (chunk.unmappedText !== undefined) this.#unmappedTexts.push(chunk.unmappedText)
  }

  /** Returns the current answer. `finish` is `stop` until the upstream sends a finish reason. */
  completion(): Completion {
    return {
      id: this.#id,
      model: this.#model,
      parts: this.#blocks.map(toPart),
      ...(this.#unmappedTexts.length === 0 ? {} : { unmappedText: this.#unmappedTexts.join('') }),
      finish: this.#finish ?? 'stop',
      ...(this.#stopSequence === undefined ? {} : { stopSequence: this.#stopSequence }),
      ...(this.#usage === undefined ? {} : { usage: { ...NO_USAGE, ...this.#usage } }),
    }
  }

  isComplete(): boolean {
    return this.#isComplete
  }

  hasFinishReason(): boolean {
    return this.#finish !== undefined
  }

  #addPart(part: StreamPart): void {
    switch (part.type) {
      case 'answer-start':
        this.#id = part.id
        this.#model = part.model
        return
      case 'usage':
        this.#usage = { ...this.#usage, ...part.usage }
        return
      case 'answer-end':
        this.#finish = part.finish
        this.#stopSequence = part.stopSequence
        return
      case 'done':
        this.#isComplete = true
        return
      default:
        this.#addContent(part)
    }
  }

  #addContent(part: ContentPart): void {
    switch (part.type) {
      case 'text-start':
        this.#startText(part.isRefusal)
        return
      case 'text-delta':
        ;(this.#text ?? this.#startText()).pieces.push(part.text)
        return
      case 'thinking-start':
        this.#startThinking(part.redacted)
        return
      case 'thinking-delta': {
        const block = this.#thinking ?? this.#startThinking(undefined)
        if (part.text !== undefined) block.pieces.push(part.text)
        if (part.signature !== undefined) block.signaturePieces.push(part.signature)
        return
      }
      case 'tool-call-start': {
        const block: ToolCallBlock = { type: 'tool-call', id: part.id, name: part.name, pieces: [] }
        this.#calls.set(part.index, block)
        this.#blocks.push(block)
        return
      }
      case 'tool-call-delta':
        this.#calls.get(part.index)?.pieces.push(part.input)
        return
      case 'opaque':
        this.#blocks.push({ type: 'opaque', part })
    }
  }

  #startText(isRefusal = false): TextBlock {
    this.#text = { type: 'text', isRefusal, pieces: [] }
    this.#blocks.push(this.#text)
    return this.#text
  }

  #startThinking(redacted: string | undefined): ThinkingBlock {
    this.#thinking = { type: 'thinking', redacted, pieces: [], signaturePieces: [] }
    this.#blocks.push(this.#thinking)
    return this.#thinking
  }
}

type ContentPart = Exclude<StreamPart, { readonly type: 'answer-start' | 'usage' | 'answer-end' | 'done' }>

function toPart(block: Block): Part {
  switch (block.type) {
    case 'text':
      return { type: 'text', text: block.pieces.join(''), ...(block.isRefusal && { isRefusal: true }) }
    case 'thinking': {
      if (block.redacted !== undefined) return { type: 'thinking', text: block.redacted, redacted: true }
      const thinking = { type: 'thinking', text: block.pieces.join('') } as const
      return block.signaturePieces.length === 0 ? thinking : { ...thinking, signature: block.signaturePieces.join('') }
    }
    case 'tool-call':
      return { type: 'tool-call', id: block.id, name: block.name, input: block.pieces.join('') }
    case 'opaque':
      return block.part
  }
}

/** Returns false for usage, empty text, and the starts of an answer, a text and a thinking block. */
export function isContent(part: StreamPart): boolean {
  switch (part.type) {
    case 'answer-start':
    case 'text-start':
    case 'thinking-start':
    case 'usage':
      return false
    case 'text-delta':
      return part.text !== ''
    default:
      return true
  }
}

/**
 * Returns the chunks of a stream that replays a stored answer. Images, documents and tool results are replayed as
 * opaque parts. The replayed text, reasoning and tool calls have no `native`.
 */
export function toStreamChunks(completion: Completion): readonly StreamChunk[] {
  const { id, model, parts, finish, stopSequence, usage } = completion
  const chunks: StreamChunk[] = [{ parts: [{ type: 'answer-start', id, model }] }]
  let toolCallCount = 0
  for (const part of parts) {
    const streamParts = streamPartsOf(part, toolCallCount)
    if (part.type === 'tool-call') toolCallCount++
    if (streamParts.length > 0) chunks.push({ parts: streamParts })
  }
  if (usage !== undefined) chunks.push({ parts: [{ type: 'usage', usage }] })
  const end = stopSequence === undefined ? { finish } : { finish, stopSequence }
  chunks.push({ parts: [{ type: 'answer-end', ...end }] }, { parts: [{ type: 'done' }] })
  return chunks
}

function streamPartsOf(part: Part, toolCallIndex: number): readonly StreamPart[] {
  switch (part.type) {
    case 'text': {
      const start = { type: 'text-start', ...(part.isRefusal === true && { isRefusal: true }) } as const
      return part.text === '' ? [start] : [start, { type: 'text-delta', text: part.text }]
    }
    case 'thinking':
      return thinkingParts(part)
    case 'tool-call': {
      const start = { type: 'tool-call-start', index: toolCallIndex, id: part.id, name: part.name } as const
      return part.input === '' ? [start] : [start, { type: 'tool-call-delta', index: toolCallIndex, input: part.input }]
    }
    case 'opaque':
      return [part]
    case 'image':
    case 'document':
    case 'tool-result':
      return part.native === undefined ? [] : [{ type: 'opaque', native: part.native }]
  }
}

function thinkingParts({ text, signature, redacted }: ThinkingPart): readonly StreamPart[] {
  if (redacted === true) return [{ type: 'thinking-start', redacted: text }]
  const parts: StreamPart[] = [{ type: 'thinking-start' }]
  if (text !== '') parts.push({ type: 'thinking-delta', text })
  if (signature !== undefined) parts.push({ type: 'thinking-delta', signature })
  return parts
}
