import {
  collect,
  type Completion,
  type StreamPart,
  type StreamChunk,
  type StreamReader,
  thinkingParts,
} from '../../core/completion.ts'
import { exactText, keepTexts, parseExactObject, replaceByTexts } from '../../core/exact-json.ts'
import type { Native } from '../../core/prompt.ts'
import { asObject, asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import { responseFailure } from '../read-failure.ts'
import {
  fillEventCallId,
  fillMessageCallIds,
  identityOf,
  nativeResponse,
  nonEmptyString,
  parseUpstreamEvent,
} from '../response-fields.ts'
import {
  type IterationUsage,
  MESSAGE_USAGE_FIELDS,
  NO_ITERATIONS,
  readFinishReason,
  readIterations,
  readMessageUsage,
} from '../usage.ts'
import { GatewayError } from '../../core/errors.ts'
import { fieldError, objectAt, stringAt } from '../read-fields.ts'

/** Inputs of tool calls in answers and in events. */
const CONTENT_PATH = ['content', 'input']
const EVENT_PATH = ['content_block', 'input']

export function readCompletion(received: JsonObject, text?: string): Completion {
  if (received['type'] === 'error') throw responseFailure(received)
  keepTexts(received, text, CONTENT_PATH)
  const body = fillMessageCallIds(received)
  const { content } = body
  const usage = asObject(body['usage'])
  const parts = parseUpstream((): readonly StreamPart[] => {
    if (!Array.isArray(content)) throw fieldError('content', content, 'an array of content blocks')
    const blocks = createBlockReader()
    return (content as readonly Json[]).flatMap((block, index) => blocks.readWhole(block, index))
  })
  const all: readonly StreamPart[] = [
    { type: 'response-start', ...identityOf(body) },
    ...parts,
    ...(usage === undefined ? [] : [{ type: 'usage', usage: readMessageUsage(usage) } as const]),
    readEnd(body, asString(body['stop_reason'])),
  ]
  return collect({ parts: all }, nativeResponse('messages', body, received, text))
}

function readEnd(fields: JsonObject | undefined, reason: string | undefined): StreamPart {
  const stopSequence = asString(fields?.['stop_sequence'])
  const finish = readFinishReason(reason)
  return stopSequence === undefined ? { type: 'response-end', finish } : { type: 'response-end', finish, stopSequence }
}

/** Rethrows `invalid-request` as `upstream`, because the invalid field came from the upstream. */
function parseUpstream<T>(read: () => T): T {
  try {
    return read()
  } catch (error) {
    if (!GatewayError.is(error) || error.kind !== 'invalid-request') throw error
    throw new GatewayError('upstream', `The model provider's answer cannot be read: ${error.message}`)
  }
}

interface ReaderState {
  readonly blocks: BlockReader
  readonly usage: Record<string, Json>
  iterations: IterationUsage
  hasStarted: boolean
  hasStopReason: boolean
  hasStopped: boolean
}

const EMPTY_CHUNK: StreamChunk = { parts: [] }

export function createReader(): StreamReader {
  const state: ReaderState = {
    blocks: createBlockReader(),
    usage: {},
    iterations: NO_ITERATIONS,
    hasStarted: false,
    hasStopReason: false,
    hasStopped: false,
  }
  return (event) => {
    if (state.hasStopped || event.data.trim() === '') return EMPTY_CHUNK
    const received = parseUpstreamEvent(event.data)
    keepTexts(received, event.data, EVENT_PATH)
    const data = fillEventCallId(received)
    const type = typeOf(data)
    const text = data === received ? event.data : replaceByTexts(data)
    const native = { dialect: 'messages', event: { ...event, event: type, data: text } } as const
    const parts = parseUpstream(() => readEvent(state, type, data))
    const unmappedText = parts.length === 0 ? unmappedTextOf(type, data) : ''
    return unmappedText === '' ? { parts, native } : { parts, unmappedText, native }
  }
}

/** Returns the text of a delta that no part contains, such as the input of a tool that the vendor runs. */
function unmappedTextOf(type: string, { delta }: JsonObject): string {
  if (type !== 'content_block_delta' || !isJsonObject(delta)) return ''
  const { type: _type, ...fields } = delta
  return Object.values(fields)
    .map((value) => asString(value) ?? '')
    .join('')
}

/** Some servers send an error without a type. */
function typeOf(event: JsonObject): string {
  if (typeof event['type'] === 'string') return event['type']
  if (isJsonObject(event['error'])) throw responseFailure(event)
  throw new GatewayError('upstream', 'The model provider sent an event without a type.')
}

function readEvent(state: ReaderState, type: string, data: JsonObject): readonly StreamPart[] {
  switch (type) {
    case 'message_start':
      return readStart(state, objectAt(data['message'], 'message_start.message'))
    case 'content_block_start':
    case 'content_block_delta':
    case 'content_block_stop':
      return state.blocks.readEvent(type, data)
    case 'message_delta':
      return readMessageDelta(state, data)
    case 'message_stop':
      return readStop(state)
    case 'error':
      throw responseFailure(data)
    default:
      return []
  }
}

/** The output count of the start event is a placeholder, which must not be billed if no later count arrives. */
function readStart(state: ReaderState, message: JsonObject): readonly StreamPart[] {
  state.hasStarted = true
  const usage = asObject(message['usage'])
  return [
    { type: 'response-start', ...identityOf(message) },
    ...readNewUsage(state, usage && { ...usage, output_tokens: null }),
  ]
}

function readMessageDelta(state: ReaderState, data: JsonObject): readonly StreamPart[] {
  const usage = readNewUsage(state, asObject(data['usage']))
  const delta = asObject(data['delta'])
  const reason = asString(delta?.['stop_reason'])
  if (reason === undefined) return usage
  state.hasStopReason = true
  return [...usage, readEnd(delta, reason)]
}

/** Counts are cumulative. The fields of all events are merged, because an event may omit some of them. */
function readNewUsage(state: ReaderState, counts: JsonObject | undefined): readonly StreamPart[] {
  if (counts === undefined) return []
  // A copy of all fields per event, or a sum of all iterations, would take quadratic time.
  for (const name of MESSAGE_USAGE_FIELDS) {
    const value = counts[name] ?? null
    if (value !== null) state.usage[name] = value
  }
  const { iterations = null } = counts
  if (iterations !== null) state.iterations = readIterations(iterations)
  return [{ type: 'usage', usage: readMessageUsage(state.usage, state.iterations) }]
}

function readStop(state: ReaderState): readonly StreamPart[] {
  if (!state.hasStarted)
    throw new GatewayError('upstream', 'The model provider ended its stream before the response began.')
  state.hasStopped = true
  const end: readonly StreamPart[] = state.hasStopReason ? [] : [{ type: 'response-end', finish: 'stop' }]
  return [...end, { type: 'done' }]
}

type BlockEvent = 'content_block_start' | 'content_block_delta' | 'content_block_stop'

interface BlockReader {
  readEvent(event: BlockEvent, data: JsonObject): readonly StreamPart[]
  /** Reads a block of a body, whose parts keep it as their native form. It may have fields such as citations. */
  readWhole(block: Json, index: number): readonly StreamPart[]
}

interface ToolBlock {
  readonly kind: 'tool'
  readonly index: number
  /** Some upstreams send the whole input in the start event. */
  readonly input: Json | undefined
  hasStreamedInput: boolean
}

/** A block that only this format supports. It is emitted when it is complete. */
interface OpaqueBlock {
  readonly kind: 'opaque'
  readonly block: JsonObject
  /** The fields of all deltas. A copy of the block per delta would take quadratic time. */
  readonly changes: Map<string, Json | undefined>
  readonly inputPieces: string[]
}

type OpenBlock = ToolBlock | OpaqueBlock

function createBlockReader(): BlockReader {
  const open = new Map<unknown, OpenBlock>()
  let callCount = 0
  const startBlock = (
    index: Json | undefined,
    block: JsonObject,
    path: string,
    isWhole = false,
  ): readonly StreamPart[] => {
    open.delete(index)
    switch (stringAt(block['type'], `${path}.type`)) {
      case 'text': {
        const text = asString(block['text']) ?? ''
        return text === '' ? [{ type: 'text-start' }] : [{ type: 'text-start' }, { type: 'text-delta', text }]
      }
      case 'thinking':
        // The start event of a stream has an empty signature.
        return thinkingParts({
          text: asString(block['thinking']) ?? '',
          signature: isWhole ? asString(block['signature']) : nonEmptyString(block['signature']),
        })
      case 'redacted_thinking':
        return [{ type: 'thinking-start', redacted: stringAt(block['data'], `${path}.data`) }]
      case 'tool_use': {
        const id = stringAt(block['id'], `${path}.id`)
        const name = stringAt(block['name'], `${path}.name`)
        const tool: ToolBlock = { kind: 'tool', index: callCount++, input: block['input'], hasStreamedInput: false }
        open.set(index, tool)
        return [{ type: 'tool-call-start', index: tool.index, id, name }]
      }
      default:
        open.set(index, { kind: 'opaque', block, changes: new Map(), inputPieces: [] })
        return []
    }
  }
  const stopBlock = (index: Json | undefined): readonly StreamPart[] => {
    const block = open.get(index)
    open.delete(index)
    return block === undefined ? [] : stopParts(block)
  }
  return {
    readEvent: (event, data) => {
      const { index } = data
      if (event === 'content_block_start') {
        return startBlock(index, objectAt(data['content_block'], 'content_block'), 'content_block')
      }
      if (event === 'content_block_stop') return stopBlock(index)
      return deltaParts(objectAt(data['delta'], 'delta'), open.get(index))
    },
    readWhole: (value, index) => {
      const path = `content[${index}]`
      const block = objectAt(value, path)
      const native: Native = { dialect: 'messages', value: block }
      checkWhole(block, path)
      const start = startBlock(index, block, path, true).map((part) => withNative(part, native))
      return [...start, ...stopBlock(index)]
    },
  }
}

/** A stream sends the content of a block in deltas, which are checked one by one. */
function checkWhole(block: JsonObject, path: string): void {
  if (block['type'] === 'text') stringAt(block['text'], `${path}.text`)
  if (block['type'] === 'thinking') stringAt(block['thinking'], `${path}.thinking`)
  if (block['type'] === 'tool_use') objectAt(block['input'], `${path}.input`)
}

function withNative(part: StreamPart, native: Native): StreamPart {
  return part.type === 'text-start' || part.type === 'thinking-start' || part.type === 'tool-call-start'
    ? { ...part, native }
    : part
}

function deltaParts(delta: JsonObject, block: OpenBlock | undefined): readonly StreamPart[] {
  switch (delta['type']) {
    case 'text_delta':
      return [{ type: 'text-delta', text: stringAt(delta['text'], 'delta.text') }]
    case 'thinking_delta':
      return [{ type: 'thinking-delta', text: stringAt(delta['thinking'], 'delta.thinking') }]
    case 'signature_delta':
      return [{ type: 'thinking-delta', signature: stringAt(delta['signature'], 'delta.signature') }]
    case 'input_json_delta':
      return inputParts(stringAt(delta['partial_json'], 'delta.partial_json'), block)
    default:
      if (block?.kind !== 'opaque') return [{ type: 'opaque', native: { dialect: 'messages', value: delta } }]
      mergeDelta(block, delta)
      return []
  }
}

function mergeDelta({ block, changes }: OpaqueBlock, delta: JsonObject): void {
  for (const [name, value] of Object.entries(delta)) {
    if (name === 'type') continue
    const received = Object.hasOwn(block, name) ? block[name] : undefined
    const before = changes.has(name) ? changes.get(name) : received
    changes.set(name, typeof before === 'string' && typeof value === 'string' ? before + value : value)
  }
}

function inputParts(input: string, block: OpenBlock | undefined): readonly StreamPart[] {
  if (block?.kind === 'opaque') block.inputPieces.push(input)
  if (block?.kind !== 'tool' || input === '') return []
  block.hasStreamedInput = true
  return [{ type: 'tool-call-delta', index: block.index, input }]
}

function stopParts(block: OpenBlock): readonly StreamPart[] {
  if (block.kind === 'opaque') return [{ type: 'opaque', native: { dialect: 'messages', value: completeBlock(block) } }]
  if (block.hasStreamedInput) return []
  return [{ type: 'tool-call-delta', index: block.index, input: exactText(block.input ?? {}) }]
}

/** `Object.fromEntries` also accepts the name `__proto__`. */
function completeBlock({ block, changes, inputPieces }: OpaqueBlock): JsonObject {
  if (changes.size === 0 && inputPieces.length === 0) return block
  const input = parseExactObject(inputPieces.join(''))
  return { ...block, ...Object.fromEntries(changes), ...(input !== undefined && { input }) }
}
