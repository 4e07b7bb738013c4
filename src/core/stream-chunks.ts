import {
  NO_USAGE,
  type StreamPart,
  type Completion,
  type FinishReason,
  type StreamChunk,
  type Usage,
} from './answer.ts'
import type { Part } from './prompt.ts'

/** Assembles an answer from its chunks, in linear time. */
export interface Collector {
  add(chunk: StreamChunk): void
  /** Returns the current answer. The finish is `stop` until the upstream sends a finish reason. */
  completion(): Completion
  isComplete(): boolean
  hasFinishReason(): boolean
}

/** Pieces are joined only when the answer is read, because joining after each piece would take quadratic time. */
interface TextBlock {
  readonly type: 'text'
  readonly pieces: string[]
}

interface ThinkingBlock {
  readonly type: 'thinking'
  readonly redacted: string | undefined
  readonly pieces: string[]
  readonly signature: string[]
}

interface ToolCallBlock {
  readonly type: 'tool-call'
  readonly id: string
  readonly name: string
  readonly pieces: string[]
}

type Block = TextBlock | ThinkingBlock | ToolCallBlock | { readonly type: 'opaque'; readonly part: Part }

interface Draft {
  id: string
  model: string
  readonly blocks: Block[]
  text: TextBlock | undefined
  thinking: ThinkingBlock | undefined
  readonly calls: Map<number, ToolCallBlock>
  usage: Partial<Usage> | undefined
  finish: FinishReason | undefined
  stopSequence: string | undefined
  isComplete: boolean
  readonly furtherTexts: string[]
}

export function createCollector(): Collector {
  const draft: Draft = {
    id: '',
    model: '',
    blocks: [],
    text: undefined,
    thinking: undefined,
    calls: new Map(),
    usage: undefined,
    finish: undefined,
    stopSequence: undefined,
    isComplete: false,
    furtherTexts: [],
  }
  return {
    add: (chunk) => {
      for (const part of chunk.parts) addPart(draft, part)
      if (chunk.furtherText !== undefined) draft.furtherTexts.push(chunk.furtherText)
    },
    completion: () => ({
      id: draft.id,
      model: draft.model,
      parts: draft.blocks.map(toPart),
      ...(draft.furtherTexts.length === 0 ? {} : { furtherText: draft.furtherTexts.join('') }),
      finish: draft.finish ?? 'stop',
      ...(draft.stopSequence === undefined ? {} : { stopSequence: draft.stopSequence }),
      ...(draft.usage === undefined ? {} : { usage: { ...NO_USAGE, ...draft.usage } }),
    }),
    isComplete: () => draft.isComplete,
    hasFinishReason: () => draft.finish !== undefined,
  }
}

function addPart(draft: Draft, part: StreamPart): void {
  switch (part.type) {
    case 'answer-start':
      draft.id = part.id
      draft.model = part.model
      return
    case 'usage':
      draft.usage = { ...draft.usage, ...part.usage }
      return
    case 'answer-end':
      draft.finish = part.finish
      draft.stopSequence = part.stopSequence
      return
    case 'done':
      draft.isComplete = true
      return
    default:
      addContent(draft, part)
  }
}

type ContentPart = Exclude<StreamPart, { readonly type: 'answer-start' | 'usage' | 'answer-end' | 'done' }>

function addContent(draft: Draft, part: ContentPart): void {
  switch (part.type) {
    case 'text-start':
      startText(draft)
      return
    case 'text-delta':
      ;(draft.text ?? startText(draft)).pieces.push(part.text)
      return
    case 'thinking-start':
      startThinking(draft, part.redacted)
      return
    case 'thinking-delta': {
      const block = draft.thinking ?? startThinking(draft, undefined)
      if (part.text !== undefined) block.pieces.push(part.text)
      if (part.signature !== undefined) block.signature.push(part.signature)
      return
    }
    case 'tool-call-start': {
      const block: ToolCallBlock = { type: 'tool-call', id: part.id, name: part.name, pieces: [] }
      draft.calls.set(part.index, block)
      draft.blocks.push(block)
      return
    }
    case 'tool-call-delta':
      draft.calls.get(part.index)?.pieces.push(part.input)
      return
    case 'opaque':
      draft.blocks.push({ type: 'opaque', part })
  }
}

function startText(draft: Draft): TextBlock {
  const block: TextBlock = { type: 'text', pieces: [] }
  draft.text = block
  draft.blocks.push(block)
  return block
}

function startThinking(draft: Draft, redacted: string | undefined): ThinkingBlock {
  const block: ThinkingBlock = { type: 'thinking', redacted, pieces: [], signature: [] }
  draft.thinking = block
  draft.blocks.push(block)
  return block
}

function toPart(block: Block): Part {
  switch (block.type) {
    case 'text':
      return { type: 'text', text: block.pieces.join('') }
    case 'thinking': {
      if (block.redacted !== undefined) return { type: 'thinking', text: block.redacted, redacted: true }
      const thinking = { type: 'thinking', text: block.pieces.join('') } as const
      return block.signature.length === 0 ? thinking : { ...thinking, signature: block.signature.join('') }
    }
    case 'tool-call':
      return { type: 'tool-call', id: block.id, name: block.name, input: block.pieces.join('') }
    case 'opaque':
      return block.part
  }
}

/**
 * Returns the chunks of a stream that replays a stored answer. Images, documents and tool results are replayed as opaque
 * parts. The replayed text, reasoning and tool calls have no `native`.
 */
export function toStreamChunks(completion: Completion): readonly StreamChunk[] {
  const { id, model, parts, finish, stopSequence, usage } = completion
  const chunks: StreamChunk[] = [{ parts: [{ type: 'answer-start', id, model }] }]
  let toolCalls = 0
  for (const part of parts) {
    const streamParts = streamPartsOf(part, toolCalls)
    if (part.type === 'tool-call') toolCalls++
    if (streamParts.length > 0) chunks.push({ parts: streamParts })
  }
  if (usage !== undefined) chunks.push({ parts: [{ type: 'usage', usage }] })
  const end = stopSequence === undefined ? { finish } : { finish, stopSequence }
  chunks.push({ parts: [{ type: 'answer-end', ...end }] }, { parts: [{ type: 'done' }] })
  return chunks
}

function streamPartsOf(part: Part, index: number): readonly StreamPart[] {
  switch (part.type) {
    case 'text':
      return part.text === ''
        ? [{ type: 'text-start' }]
        : [{ type: 'text-start' }, { type: 'text-delta', text: part.text }]
    case 'thinking':
      return thinkingParts(part.text, part.signature, part.redacted === true)
    case 'tool-call': {
      const start = { type: 'tool-call-start', index, id: part.id, name: part.name } as const
      return part.input === '' ? [start] : [start, { type: 'tool-call-delta', index, input: part.input }]
    }
    case 'opaque':
      return [part]
    case 'image':
    case 'document':
    case 'tool-result':
      return part.native === undefined ? [] : [{ type: 'opaque', native: part.native }]
  }
}

function thinkingParts(text: string, signature: string | undefined, redacted: boolean): readonly StreamPart[] {
  if (redacted) return [{ type: 'thinking-start', redacted: text }]
  const parts: StreamPart[] = [{ type: 'thinking-start' }]
  if (text !== '') parts.push({ type: 'thinking-delta', text })
  if (signature !== undefined) parts.push({ type: 'thinking-delta', signature })
  return parts
}
