import type { AnswerEvent } from '../../core/answer.ts'
import { asObject, asString, type JsonObject, parseJson } from '../../core/json.ts'
import { CUSTOM_INPUT, type CalledTool } from '../portable.ts'
import { itemId, reasoningItem } from './items.ts'

/** An event without its sequence number. */
export type ResponseEvent = JsonObject & { readonly type: string }

type ItemStatus = 'completed' | 'incomplete'

interface Open {
  readonly kind: 'text' | 'thinking' | 'call'
  readonly index: number
  readonly id: string
  readonly pieces: string[]
  readonly signature: string[]
  readonly call?: Call
}

interface Call {
  readonly call_id: string
  readonly name: string
  readonly namespace?: string
  /** True if the argument is plain text, which is written when it is complete. */
  readonly isCustom: boolean
}

/** Creates the output items of an answer, and their stream events. */
export interface OutputWriter {
  take(event: AnswerEvent): readonly ResponseEvent[]
  finish(status: ItemStatus): readonly ResponseEvent[]
  /** All items are complete after `finish`. */
  items(): readonly JsonObject[]
}

interface Writing {
  readonly stem: string
  /** Tools that the caller did not declare as functions, by the names that the model uses. */
  readonly called: ReadonlyMap<string, CalledTool>
  readonly items: JsonObject[]
  current: Open | undefined
  /** The open calls. Their deltas may be interleaved, so all calls end when the answer ends. */
  readonly calls: Map<number, Open>
}

export function outputWriter(stem: string, called: ReadonlyMap<string, CalledTool> = new Map()): OutputWriter {
  const writing: Writing = { stem, called, items: [], current: undefined, calls: new Map() }
  return {
    take: (event) => take(writing, event),
    finish: (status) => {
      const closing = [...closeCurrent(writing, status)]
      for (const call of writing.calls.values()) closing.push(...close(writing, call, status))
      writing.calls.clear()
      return closing
    },
    items: () => writing.items,
  }
}

function take(writing: Writing, event: AnswerEvent): readonly ResponseEvent[] {
  switch (event.type) {
    case 'text-start':
      return closeCurrent(writing)
    case 'text-delta':
      return event.text === '' ? [] : appendDelta(writing, 'text', event.text)
    case 'thinking-start':
      return [...closeCurrent(writing), ...(event.redacted === undefined ? [] : addRedacted(writing, event.redacted))]
    case 'thinking-delta': {
      const written = event.text === undefined || event.text === '' ? [] : appendDelta(writing, 'thinking', event.text)
      return event.signature === undefined ? written : [...written, ...appendSignature(writing, event.signature)]
    }
    case 'tool-call-start': {
      const closing = closeCurrent(writing)
      const tool = writing.called.get(event.name)
      const namespace = tool?.namespace === undefined ? {} : { namespace: tool.namespace }
      const call = {
        call_id: event.id,
        name: tool?.name ?? event.name,
        ...namespace,
        isCustom: tool?.isCustom === true,
      }
      const { open, events } = begin(writing, 'call', call)
      writing.calls.set(event.index, open)
      return [...closing, ...events]
    }
    case 'tool-call-delta': {
      const call = writing.calls.get(event.index)
      return call === undefined || event.input === '' ? [] : growCall(call, event.input)
    }
    case 'opaque':
      return event.native.dialect === 'responses' ? addWhole(writing, event.native.value) : []
    default:
      return []
  }
}

/** Adds a delta to an item. The first delta starts the item, so no item is empty. */
function appendDelta(writing: Writing, kind: 'text' | 'thinking', delta: string): readonly ResponseEvent[] {
  const opening = writing.current?.kind === kind ? [] : open(writing, kind)
  const item = writing.current
  if (item === undefined) return opening
  const isFirst = item.pieces.length === 0
  item.pieces.push(delta)
  if (kind === 'text') {
    const first = { type: 'response.content_part.added', ...inContent(item), part: outputText('') }
    const event = { type: 'response.output_text.delta', ...inContent(item), delta, logprobs: [] }
    return [...opening, ...(isFirst ? [first] : []), event]
  }
  const part = { type: 'summary_text', text: '' }
  const first = { type: 'response.reasoning_summary_part.added', ...inSummary(item), part }
  const event = { type: 'response.reasoning_summary_text.delta', ...inSummary(item), delta }
  return [...opening, ...(isFirst ? [first] : []), event]
}

function open(writing: Writing, kind: 'text' | 'thinking'): readonly ResponseEvent[] {
  const closing = closeCurrent(writing)
  const begun = begin(writing, kind)
  writing.current = begun.open
  return [...closing, ...begun.events]
}

const PREFIXES = { text: 'msg', thinking: 'rs', call: 'fc' } as const

function begin(
  writing: Writing,
  kind: Open['kind'],
  call?: Open['call'],
): { readonly open: Open; readonly events: readonly ResponseEvent[] } {
  const index = writing.items.length
  const id = itemId(PREFIXES[kind], writing.stem, index)
  const open: Open = { kind, index, id, pieces: [], signature: [], ...(call === undefined ? {} : { call }) }
  const item = itemOf(open, 'in_progress')
  writing.items.push(item)
  return { open, events: [{ type: 'response.output_item.added', output_index: index, item }] }
}

/** Returns the output item. Its content is empty until the item ends. */
function itemOf({ kind, id, pieces, signature, call }: Open, status: ItemStatus | 'in_progress'): JsonObject {
  const text = pieces.join('')
  switch (kind) {
    case 'text': {
      const content = status === 'in_progress' ? [] : [outputText(text)]
      return { id, type: 'message', status, role: 'assistant', content }
    }
    case 'thinking':
      return reasoningItem(id, text, signature.length === 0 ? {} : { signature: signature.join('') })
    case 'call':
      return callItem({ id, status }, text, call)
  }
}

function outputText(text: string): JsonObject {
  return { type: 'output_text', text, annotations: [], logprobs: [] }
}

function callItem(item: JsonObject, text: string, call: Call | undefined): JsonObject {
  const { isCustom = false, ...names } = call ?? {}
  if (isCustom) return { ...item, type: 'custom_tool_call', input: customInput(text), ...names }
  return { ...item, type: 'function_call', arguments: text, ...names }
}

/** Returns the text argument of a custom call. Arguments in another form are forwarded unchanged. */
function customInput(text: string): string {
  return asString(asObject(parseJson(text))?.[CUSTOM_INPUT]) ?? text
}

function growCall(call: Open, delta: string): readonly ResponseEvent[] {
  call.pieces.push(delta)
  if (call.call?.isCustom === true) return []
  return [{ type: 'response.function_call_arguments.delta', ...inItem(call), delta }]
}

/** Adds the signature to a reasoning item. A signature may arrive without reasoning text. */
function appendSignature(writing: Writing, signature: string): readonly ResponseEvent[] {
  const opening = writing.current?.kind === 'thinking' ? [] : open(writing, 'thinking')
  writing.current?.signature.push(signature)
  return opening
}

function closeCurrent(writing: Writing, status: ItemStatus = 'completed'): readonly ResponseEvent[] {
  const { current } = writing
  writing.current = undefined
  return current === undefined ? [] : close(writing, current, status)
}

function close(writing: Writing, open: Open, status: ItemStatus): readonly ResponseEvent[] {
  const closing = closingEvents(open)
  const item = itemOf(open, status)
  writing.items[open.index] = item
  return [...closing, { type: 'response.output_item.done', output_index: open.index, item }]
}

function closingEvents(open: Open): readonly ResponseEvent[] {
  const text = open.pieces.join('')
  switch (open.kind) {
    case 'text':
      return [
        { type: 'response.output_text.done', ...inContent(open), text, logprobs: [] },
        { type: 'response.content_part.done', ...inContent(open), part: outputText(text) },
      ]
    case 'thinking':
      if (text === '') return []
      return [
        { type: 'response.reasoning_summary_text.done', ...inSummary(open), text },
        { type: 'response.reasoning_summary_part.done', ...inSummary(open), part: { type: 'summary_text', text } },
      ]
    case 'call': {
      if (open.call?.isCustom === true) return customEvents(open, customInput(text))
      // Empty arguments are not valid JSON.
      const opening = text === '' ? growCall(open, '{}') : []
      const input = open.pieces.join('')
      const name = open.call?.name ?? ''
      return [...opening, { type: 'response.function_call_arguments.done', ...inItem(open), name, arguments: input }]
    }
  }
}

function customEvents(open: Open, input: string): readonly ResponseEvent[] {
  return [
    { type: 'response.custom_tool_call_input.delta', ...inItem(open), delta: input },
    { type: 'response.custom_tool_call_input.done', ...inItem(open), input },
  ]
}

function addRedacted(writing: Writing, redacted: string): readonly ResponseEvent[] {
  return addWhole(writing, reasoningItem(itemId('rs', writing.stem, writing.items.length), '', { redacted }))
}

function addWhole(writing: Writing, item: JsonObject): readonly ResponseEvent[] {
  const closing = closeCurrent(writing)
  const output_index = writing.items.length
  writing.items.push(item)
  return [
    ...closing,
    { type: 'response.output_item.added', output_index, item },
    { type: 'response.output_item.done', output_index, item },
  ]
}

function inItem({ id, index }: Open): JsonObject {
  return { item_id: id, output_index: index }
}

function inContent(open: Open): JsonObject {
  return { ...inItem(open), content_index: 0 }
}

function inSummary(open: Open): JsonObject {
  return { ...inItem(open), summary_index: 0 }
}
