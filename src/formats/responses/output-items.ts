import type { StreamPart } from '../../core/completion.ts'
import { asString, type JsonObject, parseObject } from '../../core/json.ts'
import type { Part } from '../../core/prompt.ts'
import { fileKindOf } from '../response-fields.ts'
import type { WriteContext } from '../format.ts'
import { collectToolset, CUSTOM_INPUT, type OriginalTool } from '../toolset.ts'
import { itemId, reasoningItem } from './items.ts'

/** An event without its sequence number. */
export type ResponseEvent = JsonObject & { readonly type: string }

type ItemStatus = 'completed' | 'incomplete'

type TextKind = 'text' | 'refusal'

interface OpenItem {
  readonly kind: TextKind | 'thinking' | 'call'
  readonly index: number
  readonly id: string
  readonly call: Call | undefined
  text: string
  signature: string
}

interface Call {
  readonly call_id: string
  readonly name: string
  readonly namespace: string | undefined
  /** The input of a custom tool is plain text, which is emitted only when the call ends. */
  readonly isCustom: boolean
}

const PREFIXES = { text: 'msg', refusal: 'msg', thinking: 'rs', call: 'fc' } as const

/** Returns the name of a file that the output cannot contain, such as an image without its data. */
export function omittedName(part: Part | StreamPart): string | undefined {
  if (part.type === 'image' && part.source.type === 'base64') return undefined
  const kind = fileKindOf(part)
  return kind && `output (${kind})`
}

export class OutputWriter {
  /** All items have their final form after `finish`. */
  readonly items: JsonObject[] = []
  hasRefusal = false
  /** The names of the files that the format cannot contain. */
  readonly omitted: Set<string> = new Set()
  readonly #stem: string
  /** Custom and namespaced tools of the caller, by the names that the model uses. */
  readonly #originalTools: ReadonlyMap<string, OriginalTool>
  #current: OpenItem | undefined
  #textKind: TextKind = 'text'
  /** Deltas of several calls may be interleaved, so all calls end when the response ends. */
  readonly #calls = new Map<number, OpenItem>()
  #events: ResponseEvent[] = []

  constructor(stem: string, originalTools: ReadonlyMap<string, OriginalTool>) {
    this.#stem = stem
    this.#originalTools = originalTools
  }

  writePart(part: StreamPart): readonly ResponseEvent[] {
    const omitted = omittedName(part)
    if (omitted !== undefined) this.omitted.add(omitted)
    this.#addPart(part)
    return this.#takeEvents()
  }

  finish(status: ItemStatus): readonly ResponseEvent[] {
    this.#closeCurrent(status)
    for (const call of this.#calls.values()) this.#closeItem(call, status)
    this.#calls.clear()
    return this.#takeEvents()
  }

  #takeEvents(): readonly ResponseEvent[] {
    const events = this.#events
    this.#events = []
    return events
  }

  #addPart(part: StreamPart): void {
    switch (part.type) {
      case 'text-start':
        this.#textKind = part.isRefusal === true ? 'refusal' : 'text'
        this.hasRefusal ||= part.isRefusal === true
        this.#closeCurrent()
        return
      case 'text-delta':
        this.#appendText(this.#textKind, part.text)
        return
      case 'thinking-start':
        this.#closeCurrent()
        if (part.redacted !== undefined) this.#addRedacted(part.redacted)
        return
      case 'thinking-delta':
        this.#appendText('thinking', part.text ?? '')
        // A signature may arrive without reasoning text.
        if (part.signature !== undefined) this.#continueItem('thinking').signature += part.signature
        return
      case 'tool-call-start':
        this.#closeCurrent()
        this.#calls.set(part.index, this.#beginItem('call', this.#originalCall(part.id, part.name)))
        return
      case 'tool-call-delta':
        this.#appendInput(this.#calls.get(part.index), part.input)
        return
      case 'image':
        if (part.source.type === 'base64') this.#addImage(part.source.mediaType, part.source.data)
        return
      case 'opaque':
        if (part.native.dialect === 'responses') this.#addCompleteItem(part.native.value)
        return
      default:
    }
  }

  #originalCall(id: string, name: string): Call {
    const tool = this.#originalTools.get(name)
    return {
      call_id: id,
      name: tool?.name ?? name,
      namespace: tool?.namespace,
      isCustom: tool?.isCustom === true,
    }
  }

  /** The first delta starts the item, so no message is empty. */
  #appendText(kind: TextKind | 'thinking', delta: string): void {
    if (delta === '') return
    const item = this.#continueItem(kind)
    const isFirst = item.text === ''
    item.text += delta
    if (kind === 'thinking') {
      const fields = summaryFields(item)
      const part = { type: 'summary_text', text: '' }
      if (isFirst) this.#events.push({ type: 'response.reasoning_summary_part.added', ...fields, part })
      this.#events.push({ type: 'response.reasoning_summary_text.delta', ...fields, delta })
      return
    }
    const fields = contentFields(item)
    if (isFirst) {
      this.#events.push({ type: 'response.content_part.added', ...fields, part: textBlock(kind, '') })
    }
    this.#events.push(
      kind === 'refusal'
        ? { type: 'response.refusal.delta', ...fields, delta }
        : { type: 'response.output_text.delta', ...fields, delta, logprobs: [] },
    )
  }

  #appendInput(open: OpenItem | undefined, delta: string): void {
    if (open === undefined || delta === '') return
    open.text += delta
    if (open.call?.isCustom === true) return
    this.#events.push({ type: 'response.function_call_arguments.delta', ...itemFields(open), delta })
  }

  #continueItem(kind: TextKind | 'thinking'): OpenItem {
    if (this.#current?.kind === kind) return this.#current
    this.#closeCurrent()
    return (this.#current = this.#beginItem(kind))
  }

  #beginItem(kind: OpenItem['kind'], call?: Call): OpenItem {
    const index = this.items.length
    const open: OpenItem = { kind, index, id: itemId(PREFIXES[kind], this.#stem, index), call, text: '', signature: '' }
    const item = itemOf(open, 'in_progress')
    this.items.push(item)
    this.#events.push({ type: 'response.output_item.added', output_index: index, item })
    return open
  }

  #closeCurrent(status: ItemStatus = 'completed'): void {
    if (this.#current !== undefined) this.#closeItem(this.#current, status)
    this.#current = undefined
  }

  #closeItem(open: OpenItem, status: ItemStatus): void {
    // Empty arguments are not valid JSON.
    if (open.kind === 'call' && open.call?.isCustom !== true && open.text === '') this.#appendInput(open, '{}')
    const item = itemOf(open, status)
    this.items[open.index] = item
    this.#events.push(...closingEvents(open), { type: 'response.output_item.done', output_index: open.index, item })
  }

  #addRedacted(redacted: string): void {
    this.#addCompleteItem(reasoningItem(itemId('rs', this.#stem, this.items.length), '', { redacted }))
  }

  /** The vendor's own models return images as calls of its image tool. */
  #addImage(mediaType: string, result: string): void {
    this.#closeCurrent()
    const output_index = this.items.length
    const id = itemId('ig', this.#stem, output_index)
    const fields = { id, type: 'image_generation_call', output_format: mediaType.replace(/^image\//, '') }
    const item = { ...fields, status: 'completed', result }
    this.items.push(item)
    this.#events.push(
      { type: 'response.output_item.added', output_index, item: { ...fields, status: 'in_progress', result: null } },
      { type: 'response.image_generation_call.completed', output_index, item_id: id },
      { type: 'response.output_item.done', output_index, item },
    )
  }

  #addCompleteItem(item: JsonObject): void {
    this.#closeCurrent()
    const output_index = this.items.length
    this.items.push(item)
    this.#events.push(
      { type: 'response.output_item.added', output_index, item },
      { type: 'response.output_item.done', output_index, item },
    )
  }
}

function itemOf({ kind, id, text, signature, call }: OpenItem, status: ItemStatus | 'in_progress'): JsonObject {
  switch (kind) {
    case 'text':
    case 'refusal': {
      const content = status === 'in_progress' ? [] : [textBlock(kind, text)]
      return { id, type: 'message', status, role: 'assistant', content }
    }
    case 'thinking':
      return reasoningItem(id, text, { signature })
    case 'call': {
      const { isCustom = false, ...names } = call ?? {}
      return isCustom
        ? { id, status, type: 'custom_tool_call', input: customInput(text), ...names }
        : { id, status, type: 'function_call', arguments: text, ...names }
    }
  }
}

function textBlock(kind: TextKind, text: string): JsonObject {
  if (kind === 'refusal') return { type: 'refusal', refusal: text }
  return { type: 'output_text', text, annotations: [], logprobs: [] }
}

function customInput(text: string): string {
  return asString(parseObject(text)?.[CUSTOM_INPUT]) ?? text
}

function closingEvents(open: OpenItem): readonly ResponseEvent[] {
  const { kind, text, call } = open
  switch (kind) {
    case 'text':
      return [
        { type: 'response.output_text.done', ...contentFields(open), text, logprobs: [] },
        { type: 'response.content_part.done', ...contentFields(open), part: textBlock(kind, text) },
      ]
    case 'refusal':
      return [
        { type: 'response.refusal.done', ...contentFields(open), refusal: text },
        { type: 'response.content_part.done', ...contentFields(open), part: textBlock(kind, text) },
      ]
    case 'thinking':
      if (text === '') return []
      return [
        { type: 'response.reasoning_summary_text.done', ...summaryFields(open), text },
        { type: 'response.reasoning_summary_part.done', ...summaryFields(open), part: { type: 'summary_text', text } },
      ]
    case 'call': {
      const name = call?.name ?? ''
      if (call?.isCustom !== true) {
        return [{ type: 'response.function_call_arguments.done', ...itemFields(open), name, arguments: text }]
      }
      const input = customInput(text)
      return [
        { type: 'response.custom_tool_call_input.delta', ...itemFields(open), delta: input },
        { type: 'response.custom_tool_call_input.done', ...itemFields(open), input },
      ]
    }
  }
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

export function customAndNamespacedTools({ prompt }: WriteContext): ReadonlyMap<string, OriginalTool> {
  const { originalsByName } = collectToolset(prompt)
  return new Map([...originalsByName].filter(([, { isCustom, namespace }]) => isCustom || namespace !== undefined))
}
