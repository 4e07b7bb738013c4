import { collect, type Completion, type StreamPart, type StreamReader } from '../../core/completion.ts'
import { GatewayError } from '../../core/errors.ts'
import { asArray, asObject, asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Native } from '../../core/prompt.ts'
import { responseFailure } from '../read-failure.ts'
import { readResponseFinishReason, RESPONSE_USAGE_FIELDS, readTiers, readUsage } from '../usage.ts'
import {
  fillResponseCallIds,
  identityOf,
  nativeResponse,
  parseUpstreamEvent,
  createResponseCallIdFiller,
} from '../response-fields.ts'
import { decodeReasoning, REASONING_SEPARATOR, reasoningTextOf } from './items.ts'

export function readCompletion(received: JsonObject, text?: string): Completion {
  const body = fillResponseCallIds(received)
  if (body['status'] === 'failed' || asObject(body['error']) !== undefined) throw responseFailure(body)
  if (!Array.isArray(body['output'])) {
    throw new GatewayError('upstream', 'The model provider sent an empty response: the body has no output.')
  }
  const state = createState()
  const parts: StreamPart[] = []
  let unmappedText = ''
  for (const [output_index, item] of asArray(body['output']).entries()) {
    if (!isJsonObject(item)) continue
    const data = { output_index, item }
    parts.push(...readItemStart(state, data, { dialect: 'responses', value: item }))
    parts.push(...contentParts(state, item), ...readItemEnd(state, data))
    unmappedText += unmappedTextOf(state, 'response.output_item.done', data)
  }
  parts.push(...readEnd(state, { response: body }))
  const chunk = unmappedText === '' ? { parts } : { parts, unmappedText }
  return collect(chunk, nativeResponse('responses', body, received, text))
}

/** Reads the content that a stream sends between the start and the end of an item. */
function contentParts(state: ReaderState, item: JsonObject): readonly StreamPart[] {
  if (item['type'] === 'reasoning') {
    const { redacted } = decodeReasoning(item['encrypted_content'])
    const text = redacted === undefined ? reasoningTextOf(item) : ''
    return text === '' ? [] : [{ type: 'thinking-delta', text }]
  }
  if (item['type'] !== 'message') return []
  return asArray(item['content']).flatMap((content): readonly StreamPart[] => {
    const block = asObject(content)
    if (block?.['type'] === 'refusal') state.hasRefusal = true
    const text = asString(block?.['text']) ?? asString(block?.['refusal'])
    if (block === undefined || text === undefined) return []
    return [
      { type: 'text-start', native: { dialect: 'responses', value: block } },
      { type: 'text-delta', text },
    ]
  })
}

export const LAST_EVENTS: ReadonlySet<string> = new Set(['response.completed', 'response.incomplete'])

interface Call {
  readonly index: number
  hasStreamedInput: boolean
}

interface ReaderState {
  hasStarted: boolean
  hasRefusal: boolean
  /** Output indexes of the items whose unmapped text was streamed. */
  readonly unmappedItems: Set<unknown>
  /** Calls by the output index of their items. */
  readonly calls: Map<unknown, Call>
}

function createState(): ReaderState {
  return { hasStarted: false, hasRefusal: false, unmappedItems: new Set(), calls: new Map() }
}

export function createReader(): StreamReader {
  const state = createState()
  const fillCallIds = createResponseCallIdFiller()
  return (event) => {
    const received = parseUpstreamEvent(event.data)
    const data = fillCallIds(received)
    const type = asString(data['type']) ?? ''
    const text = data === received ? event.data : JSON.stringify(data)
    const native = { dialect: 'responses', event: { ...event, event: type, data: text } } as const
    const parts = readEvent(state, type, data)
    const unmappedText = unmappedTextOf(state, type, data)
    return unmappedText === '' ? { parts, native } : { parts, unmappedText, native }
  }
}

const MAPPED_ITEMS: ReadonlySet<unknown> = new Set(['message', 'reasoning', 'function_call'])
/** Deltas of mapped items, and audio data, which is not text. */
const MAPPED_DELTA = /^response\.(output_text|refusal|reasoning\w*|function_call_arguments|audio)\.delta$/

function unmappedTextOf(state: ReaderState, type: string, data: JsonObject): string {
  const index = data['output_index']
  if (type === 'response.output_item.done') {
    const item = asObject(data['item']) ?? {}
    return MAPPED_ITEMS.has(item['type']) || state.unmappedItems.has(index) ? '' : writtenText(item)
  }
  const delta = MAPPED_DELTA.test(type) ? '' : (asString(data['delta']) ?? '')
  if (delta !== '') state.unmappedItems.add(index)
  return delta
}

/** Fields of a call that the model writes, unlike the results of a search. */
const WRITTEN_FIELDS = ['input', 'arguments', 'code', 'action', 'operation'] as const

function writtenText(item: JsonObject): string {
  return WRITTEN_FIELDS.map((name) => {
    const value = item[name] ?? ''
    return typeof value === 'string' ? value : JSON.stringify(value)
  }).join('')
}

function readEvent(state: ReaderState, type: string, data: JsonObject): readonly StreamPart[] {
  if (LAST_EVENTS.has(type)) return readEnd(state, data)
  switch (type) {
    case 'error':
    case 'response.failed':
      throw responseFailure(failedResponse(data))
    case 'response.created':
    case 'response.in_progress':
    case 'response.queued':
      return readStart(state, data)
    case 'response.output_item.added':
      return readItemStart(state, data)
    case 'response.output_item.done':
      return readItemEnd(state, data)
    case 'response.reasoning_summary_part.added':
      return startOfReasoning(data['summary_index'])
    case 'response.content_part.added':
      if (asObject(data['part'])?.['type'] === 'reasoning_text') return startOfReasoning(data['content_index'])
      return isTextStart(data) ? [{ type: 'text-start' }] : []
    default:
      return readDelta(state, type, data)
  }
}

/** An `error` event has the error in `error` or, as documented, at the top level. */
function failedResponse(data: JsonObject): JsonObject {
  const response = asObject(data['response']) ?? data
  return asObject(response['error']) === undefined ? { error: data } : response
}

function readDelta(state: ReaderState, type: string, data: JsonObject): readonly StreamPart[] {
  const annotation = asObject(data['annotation'])
  if (annotation !== undefined) return [{ type: 'opaque', native: { dialect: 'responses', value: annotation } }]
  const delta = asString(data['delta']) ?? ''
  if (delta === '') return []
  switch (type) {
    case 'response.refusal.delta':
      state.hasRefusal = true
      return [{ type: 'text-delta', text: delta }]
    case 'response.output_text.delta':
      return [{ type: 'text-delta', text: delta }]
    case 'response.reasoning_summary_text.delta':
    case 'response.reasoning_text.delta':
      return [{ type: 'thinking-delta', text: delta }]
    case 'response.function_call_arguments.delta': {
      const call = state.calls.get(data['output_index'])
      if (call === undefined) return []
      call.hasStreamedInput = true
      return [{ type: 'tool-call-delta', index: call.index, input: delta }]
    }
    default:
      return []
  }
}

/** Parts of reasoning are joined as by `reasoningTextOf`. */
function startOfReasoning(index: Json | undefined): readonly StreamPart[] {
  return typeof index === 'number' && index > 0 ? [{ type: 'thinking-delta', text: REASONING_SEPARATOR }] : []
}

function isTextStart(data: JsonObject): boolean {
  const type = asObject(data['part'])?.['type']
  return type === 'output_text' || type === 'refusal'
}

function readStart(state: ReaderState, data: JsonObject): readonly StreamPart[] {
  if (state.hasStarted) return []
  state.hasStarted = true
  return [{ type: 'response-start', ...identityOf(asObject(data['response'])) }]
}

/** @param native The item, if it was received at once. */
function readItemStart(state: ReaderState, data: JsonObject, native?: Native): readonly StreamPart[] {
  const item = asObject(data['item'])
  if (item?.['type'] === 'reasoning') {
    const { redacted } = decodeReasoning(item['encrypted_content'])
    return [{ type: 'thinking-start', ...(redacted !== undefined && { redacted }), ...(native && { native }) }]
  }
  if (item?.['type'] !== 'function_call') return []
  const index = state.calls.size
  state.calls.set(data['output_index'], { index, hasStreamedInput: false })
  const id = asString(item['call_id']) ?? ''
  return [{ type: 'tool-call-start', index, id, name: asString(item['name']) ?? '', ...(native && { native }) }]
}

/** The end event of an item may contain parts that were not streamed. */
function readItemEnd(state: ReaderState, data: JsonObject): readonly StreamPart[] {
  const item = asObject(data['item'])
  if (item === undefined) return []
  switch (item['type']) {
    case 'message':
      return []
    case 'reasoning': {
      const { signature } = decodeReasoning(item['encrypted_content'])
      return signature === undefined ? [] : [{ type: 'thinking-delta', signature }]
    }
    case 'function_call': {
      const call = state.calls.get(data['output_index'])
      const input = asString(item['arguments']) ?? ''
      return call === undefined || call.hasStreamedInput || input === ''
        ? []
        : [{ type: 'tool-call-delta', index: call.index, input }]
    }
    default:
      return [{ type: 'opaque', native: { dialect: 'responses', value: item } }]
  }
}

function readEnd(state: ReaderState, data: JsonObject): readonly StreamPart[] {
  const response = asObject(data['response']) ?? {}
  const usage = readUsage(response['usage'], RESPONSE_USAGE_FIELDS)
  const tiers = readTiers(response)
  const finish = readResponseFinishReason(response, state.calls.size > 0, state.hasRefusal)
  return [
    ...readStart(state, data),
    ...(usage === undefined
      ? []
      : [{ type: 'usage', usage: { ...usage, ...(tiers !== undefined && { tiers }) } } as const]),
    { type: 'response-end', finish },
    { type: 'done' },
  ]
}
