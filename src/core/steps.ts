import { NO_USAGE, type AnswerEvent, type Completion, type Finish, type Step, type Usage } from './answer.ts'
import type { Part } from './prompt.ts'

/** Assembles an answer from its steps, in linear time. */
export interface Collector {
  add(step: Step): void
  /** Returns the current answer. The finish is `stop` until the upstream sends a finish reason. */
  completion(): Completion
  isWhole(): boolean
  isFinished(): boolean
}

/**
 * An incomplete block. The pieces are joined only once, when the block is complete. Joining after each piece would take
 * quadratic time.
 */
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

type Block = TextBlock | ThinkingBlock | ToolCallBlock | { readonly type: 'done'; readonly part: Part }

interface Draft {
  id: string
  model: string
  readonly blocks: Block[]
  text: TextBlock | undefined
  thinking: ThinkingBlock | undefined
  readonly calls: Map<number, ToolCallBlock>
  usage: Partial<Usage> | undefined
  finish: Finish | undefined
  stopSequence: string | undefined
  whole: boolean
  readonly furtherTexts: string[]
}

export function collector(): Collector {
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
    whole: false,
    furtherTexts: [],
  }
  return {
    add: (step) => {
      for (const event of step.events) take(draft, event)
      if (step.furtherText !== undefined) draft.furtherTexts.push(step.furtherText)
    },
    completion: () => ({
      id: draft.id,
      model: draft.model,
      parts: draft.blocks.map(partOf),
      ...(draft.furtherTexts.length === 0 ? {} : { furtherText: draft.furtherTexts.join('') }),
      finish: draft.finish ?? 'stop',
      ...(draft.stopSequence === undefined ? {} : { stopSequence: draft.stopSequence }),
      ...(draft.usage === undefined ? {} : { usage: { ...NO_USAGE, ...draft.usage } }),
    }),
    isWhole: () => draft.whole,
    isFinished: () => draft.finish !== undefined,
  }
}

function take(draft: Draft, event: AnswerEvent): void {
  switch (event.type) {
    case 'answer-start':
      draft.id = event.id
      draft.model = event.model
      return
    case 'usage':
      draft.usage = { ...draft.usage, ...event.usage }
      return
    case 'answer-end':
      draft.finish = event.finish
      draft.stopSequence = event.stopSequence
      return
    case 'done':
      draft.whole = true
      return
    default:
      takeContent(draft, event)
  }
}

type ContentEvent = Exclude<AnswerEvent, { readonly type: 'answer-start' | 'usage' | 'answer-end' | 'done' }>

function takeContent(draft: Draft, event: ContentEvent): void {
  switch (event.type) {
    case 'text-start':
      startText(draft)
      return
    case 'text-delta':
      ;(draft.text ?? startText(draft)).pieces.push(event.text)
      return
    case 'thinking-start':
      startThinking(draft, event.redacted)
      return
    case 'thinking-delta': {
      const block = draft.thinking ?? startThinking(draft, undefined)
      if (event.text !== undefined) block.pieces.push(event.text)
      if (event.signature !== undefined) block.signature.push(event.signature)
      return
    }
    case 'tool-call-start': {
      const block: ToolCallBlock = { type: 'tool-call', id: event.id, name: event.name, pieces: [] }
      draft.calls.set(event.index, block)
      draft.blocks.push(block)
      return
    }
    case 'tool-call-delta':
      draft.calls.get(event.index)?.pieces.push(event.input)
      return
    case 'opaque':
      draft.blocks.push({ type: 'done', part: event })
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

function partOf(block: Block): Part {
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
    case 'done':
      return block.part
  }
}

/**
 * Returns the steps of a stream that replays a stored answer. Images, documents and tool results are replayed as opaque
 * parts. The replayed text, reasoning and tool calls have no `native`.
 */
export function stepsOf(completion: Completion): readonly Step[] {
  const { id, model, parts, finish, stopSequence, usage } = completion
  const steps: Step[] = [{ events: [{ type: 'answer-start', id, model }] }]
  let calls = 0
  for (const part of parts) {
    const events = eventsOf(part, calls)
    if (part.type === 'tool-call') calls++
    if (events.length > 0) steps.push({ events })
  }
  if (usage !== undefined) steps.push({ events: [{ type: 'usage', usage }] })
  const end = stopSequence === undefined ? { finish } : { finish, stopSequence }
  steps.push({ events: [{ type: 'answer-end', ...end }] }, { events: [{ type: 'done' }] })
  return steps
}

function eventsOf(part: Part, index: number): readonly AnswerEvent[] {
  switch (part.type) {
    case 'text':
      return part.text === ''
        ? [{ type: 'text-start' }]
        : [{ type: 'text-start' }, { type: 'text-delta', text: part.text }]
    case 'thinking':
      return thinkingEvents(part.text, part.signature, part.redacted === true)
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

function thinkingEvents(text: string, signature: string | undefined, redacted: boolean): readonly AnswerEvent[] {
  if (redacted) return [{ type: 'thinking-start', redacted: text }]
  const events: AnswerEvent[] = [{ type: 'thinking-start' }]
  if (text !== '') events.push({ type: 'thinking-delta', text })
  if (signature !== undefined) events.push({ type: 'thinking-delta', signature })
  return events
}
