import type { StreamPart } from '../../core/answer.ts'
import { asObject, asString, type JsonObject, parseJson } from '../../core/json.ts'
import type { WriteContext } from '../format.ts'
import { collectToolset, CUSTOM_INPUT, type OriginalTool } from '../portable.ts'
import { itemId, reasoningItem } from './items.ts'

/** An event without its sequence number. */
export type ResponseEvent = JsonObject & { readonly type: string }

type ItemStatus = 'completed' | 'incomplete'

type TextKind = 'text' | 'refusal'

interface OpenItem {
  readonly kind: TextKind | 'thinking' | 'call'
  readonly index: number
  readonly id: string
  readonly pieces: string[]
  readonly signaturePieces: string[]
  readonly call?: Call
}

interface Call {
  readonly call_id: string
  readonly name: string
  readonly namespace?: string
  /** True for a custom tool. Its input is plain text, which is emitted only when the call is complete. */
  readonly isCustom: boolean
}

/** Creates the output items of an answer and their stream events. */
export interface OutputWriter {
  writePart(part: StreamPart): readonly ResponseEvent[]
  finish(status: ItemStatus): readonly ResponseEvent[]
  hasRefusal(): boolean
  /** All items are complete after `finish`. */
  items(): readonly JsonObject[]
}

interface OutputState {
  readonly stem: string
  /** Custom and namespaced tools of the caller, by the names that the model uses. */
  readonly originalTools: ReadonlyMap<string, OriginalTool>
  readonly items: JsonObject[]
  current: OpenItem | undefined
  /** The kind of the text that follows. */
  textKind: TextKind
  hasRefusal: boolean
  /** Deltas of several calls may be interleaved, so all calls end when the answer ends. */
  readonly calls: Map<number, OpenItem>
}

export function createOutputWriter(
  stem: string,
  originalTools: ReadonlyMap<string, OriginalTool> = new Map(),
): OutputWriter {
  const state: OutputState = {
    stem,
    originalTools,
    items: [],
    current: undefined,
    textKind: 'text',
    hasRefusal: false,
    calls: new Map(),
  }
  return {
    writePart: (part) => addPart(state, part),
    finish: (status) => {
      const closing = [...closeCurrent(state, status)]
      for (const call of state.calls.values()) closing.push(...closeItem(state, call, status))
      state.calls.clear()
      return closing
    },
    hasRefusal: () => state.hasRefusal,
    items: () => state.items,
  }
}

function addPart(state: OutputState, part: StreamPart): readonly ResponseEvent[] {
  switch (part.type) {
    case 'text-start':
      state.textKind = part.isRefusal === true ? 'refusal' : 'text'
      state.hasRefusal ||= part.isRefusal === true
      return closeCurrent(state)
    case 'text-delta':
      return part.text === '' ? [] : appendDelta(state, state.textKind, part.text)
    case 'thinking-start':
      return [...closeCurrent(state), ...(part.redacted === undefined ? [] : addRedacted(state, part.redacted))]
    case 'thinking-delta': {
      const events = part.text === undefined || part.text === '' ? [] : appendDelta(state, 'thinking', part.text)
      return part.signature === undefined ? events : [...events, ...appendSignature(state, part.signature)]
    }
    case 'tool-call-start': {
      const closing = closeCurrent(state)
      const tool = state.originalTools.get(part.name)
      const namespace = tool?.namespace === undefined ? {} : { namespace: tool.namespace }
      const call = {
        call_id: part.id,
        name: tool?.name ?? part.name,
        ...namespace,
        isCustom: tool?.isCustom === true,
      }
      const { open, events } = beginItem(state, 'call', call)
      state.calls.set(part.index, open)
      return [...closing, ...events]
    }
    case 'tool-call-delta': {
      const call = state.calls.get(part.index)
      return call === undefined || part.input === '' ? [] : appendInput(call, part.input)
    }
    case 'opaque':
      return part.native.dialect === 'responses' ? addCompleteItem(state, part.native.value) : []
    default:
      return []
  }
}

/** The first delta starts the item, so no item is empty. */
function appendDelta(state: OutputState, kind: TextKind | 'thinking', delta: string): readonly ResponseEvent[] {
  const opening = state.current?.kind === kind ? [] : openCurrent(state, kind)
  const item = state.current
  if (item === undefined) return opening
  const isFirst = item.pieces.length === 0
  item.pieces.push(delta)
  if (kind !== 'thinking') {
    const first = { type: 'response.content_part.added', ...contentFields(item), part: textBlock(kind, '') }
    const fields = { ...contentFields(item), delta }
    const event =
      kind === 'refusal'
        ? { type: 'response.refusal.delta', ...fields }
        : { type: 'response.output_text.delta', ...fields, logprobs: [] }
    return [...opening, ...(isFirst ? [first] : []), event]
  }
  const part = { type: 'summary_text', text: '' }
  const first = { type: 'response.reasoning_summary_part.added', ...summaryFields(item), part }
  const event = { type: 'response.reasoning_summary_text.delta', ...summaryFields(item), delta }
  return [...opening, ...(isFirst ? [first] : []), event]
}

function openCurrent(state: OutputState, kind: TextKind | 'thinking'): readonly ResponseEvent[] {
  const closing = closeCurrent(state)
  const begun = beginItem(state, kind)
  state.current = begun.open
  return [...closing, ...begun.events]
}

const PREFIXES = { text: 'msg', refusal: 'msg', thinking: 'rs', call: 'fc' } as const

function beginItem(
  state: OutputState,
  kind: OpenItem['kind'],
  call?: OpenItem['call'],
): { readonly open: OpenItem; readonly events: readonly ResponseEvent[] } {
  const index = state.items.length
  const id = itemId(PREFIXES[kind], state.stem, index)
  const open: OpenItem = { kind, index, id, pieces: [], signaturePieces: [], ...(call === undefined ? {} : { call }) }
  const item = itemOf(open, 'in_progress')
  state.items.push(item)
  return { open, events: [{ type: 'response.output_item.added', output_index: index, item }] }
}

/** The content is empty until the item ends. */
function itemOf({ kind, id, pieces, signaturePieces, call }: OpenItem, status: ItemStatus | 'in_progress'): JsonObject {
  const text = pieces.join('')
  switch (kind) {
    case 'text':
    case 'refusal': {
      const content = status === 'in_progress' ? [] : [textBlock(kind, text)]
      return { id, type: 'message', status, role: 'assistant', content }
    }
    case 'thinking':
      return reasoningItem(id, text, signaturePieces.length === 0 ? {} : { signature: signaturePieces.join('') })
    case 'call':
      return callItem({ id, status }, text, call)
  }
}

function textBlock(kind: TextKind, text: string): JsonObject {
  if (kind === 'refusal') return { type: 'refusal', refusal: text }
  return { type: 'output_text', text, annotations: [], logprobs: [] }
}

function callItem(item: JsonObject, text: string, call: Call | undefined): JsonObject {
  const { isCustom = false, ...names } = call ?? {}
  if (isCustom) return { ...item, type: 'custom_tool_call', input: customInput(text), ...names }
  return { ...item, type: 'function_call', arguments: text, ...names }
}

/** Returns the plain-text input that the arguments wrap, or the arguments themselves if they have a different form. */
function customInput(text: string): string {
  return asString(asObject(parseJson(text))?.[CUSTOM_INPUT]) ?? text
}

function appendInput(open: OpenItem, delta: string): readonly ResponseEvent[] {
  open.pieces.push(delta)
  if (open.call?.isCustom === true) return []
  return [{ type: 'response.function_call_arguments.delta', ...itemFields(open), delta }]
}

/** A signature may arrive without reasoning text. */
function appendSignature(state: OutputState, signature: string): readonly ResponseEvent[] {
  const opening = state.current?.kind === 'thinking' ? [] : openCurrent(state, 'thinking')
  state.current?.signaturePieces.push(signature)
  return opening
}

function closeCurrent(state: OutputState, status: ItemStatus = 'completed'): readonly ResponseEvent[] {
  const { current } = state
  state.current = undefined
  return current === undefined ? [] : closeItem(state, current, status)
}

function closeItem(state: OutputState, open: OpenItem, status: ItemStatus): readonly ResponseEvent[] {
  const closing = closingEvents(open)
  const item = itemOf(open, status)
  state.items[open.index] = item
  return [...closing, { type: 'response.output_item.done', output_index: open.index, item }]
}

function closingEvents(open: OpenItem): readonly ResponseEvent[] {
  const text = open.pieces.join('')
  switch (open.kind) {
    case 'text':
      return [
        { type: 'response.output_text.done', ...contentFields(open), text, logprobs: [] },
        { type: 'response.content_part.done', ...contentFields(open), part: textBlock(open.kind, text) },
      ]
    case 'refusal':
      return [
        { type: 'response.refusal.done', ...contentFields(open), refusal: text },
        { type: 'response.content_part.done', ...contentFields(open), part: textBlock(open.kind, text) },
      ]
    case 'thinking':
      if (text === '') return []
      return [
        { type: 'response.reasoning_summary_text.done', ...summaryFields(open), text },
        { type: 'response.reasoning_summary_part.done', ...summaryFields(open), part: { type: 'summary_text', text } },
      ]
    case 'call': {
      if (open.call?.isCustom === true) return customInputEvents(open, customInput(text))
      // Empty arguments are not valid JSON.
      const opening = text === '' ? appendInput(open, '{}') : []
      const input = open.pieces.join('')
      const name = open.call?.name ?? ''
      return [
        ...opening,
        { type: 'response.function_call_arguments.done', ...itemFields(open), name, arguments: input },
      ]
    }
  }
}

function customInputEvents(open: OpenItem, input: string): readonly ResponseEvent[] {
  return [
    { type: 'response.custom_tool_call_input.delta', ...itemFields(open), delta: input },
    { type: 'response.custom_tool_call_input.done', ...itemFields(open), input },
  ]
}

function addRedacted(state: OutputState, redacted: string): readonly ResponseEvent[] {
  return addCompleteItem(state, reasoningItem(itemId('rs', state.stem, state.items.length), '', { redacted }))
}

function addCompleteItem(state: OutputState, item: JsonObject): readonly ResponseEvent[] {
  const closing = closeCurrent(state)
  const output_index = state.items.length
  state.items.push(item)
  return [
    ...closing,
    { type: 'response.output_item.added', output_index, item },
    { type: 'response.output_item.done', output_index, item },
  ]
}

function itemFields({ id, index }: OpenItem): JsonObject {
  return { item_id: id, output_index: index }
}

function contentFields(open: OpenItem): JsonObject {
  return { ...itemFields(open), content_index: 0 }
}

function summaryFields(open: OpenItem): JsonObject {
  return { ...itemFields(open), summary_index: 0 }
}

/** Returns the tools whose calls are not written as plain function calls: custom tools, and tools in a namespace. */
export function customAndNamespacedTools({ prompt }: WriteContext): ReadonlyMap<string, OriginalTool> {
  const { originalsByName } = collectToolset(prompt)
  return new Map([...originalsByName].filter(([, { isCustom, namespace }]) => isCustom || namespace !== undefined))
}
