import type { AnswerEvent } from '../../core/answer.ts'
import { freshId } from '../fresh-ids.ts'
import { asArray, asObject, asString, type JsonObject } from '../../core/json.ts'

interface Call {
  readonly ordinal: number
  id: string | undefined
  name: string | undefined
  started: boolean
  /** Arguments that came before the name. */
  waiting: string
}

/** Follows the tool calls of one streamed answer. */
export interface CallReader {
  /** What a delta says of tool calls. */
  read(delta: JsonObject): readonly AnswerEvent[]
  count(): number
}

/** The key of the one call of the old form, beside the numbered ones. */
const OLD_FORM = 'function_call'

/**
 * Upstreams number calls from 0, from 1, or all alike; some repeat id and name in each piece, some leave the number out.
 * Here a call starts once, when its name is known, and calls count from 0 in the order of their starts.
 */
export function callReader(): CallReader {
  const calls = new Map<string | number, Call>()
  let begun = 0
  let last: string | number = 0

  const callFor = (key: string | number, id: string | undefined, name: string | undefined): Call => {
    const known = calls.get(key)
    const isAnother = known?.started === true && id !== undefined && name !== undefined && id !== known.id
    if (known !== undefined && !isAnother) return known
    const call: Call = { ordinal: begun++, id: undefined, name: undefined, started: false, waiting: '' }
    calls.set(key, call)
    return call
  }

  const readPiece = (key: string | number, piece: JsonObject, called: JsonObject): readonly AnswerEvent[] => {
    last = key
    const id = nonEmpty(piece['id'])
    const name = nonEmpty(called['name'])
    const call = callFor(key, id, name)
    call.id ??= id
    call.name ??= name
    return advance(call, inputOf(called))
  }

  return {
    count: () => begun,
    read: (delta) => {
      const events = asArray(delta['tool_calls']).flatMap((item) => {
        const piece = asObject(item)
        const called = asObject(piece?.['function']) ?? asObject(piece?.['custom'])
        if (piece === undefined || called === undefined) return []
        const { index } = piece
        const unnumbered = nonEmpty(piece['id']) === undefined ? last : `id:${String(piece['id'])}`
        return readPiece(typeof index === 'number' ? index : unnumbered, piece, called)
      })
      const old = asObject(delta['function_call'])
      return old === undefined ? events : [...events, ...readPiece(OLD_FORM, {}, old)]
    },
  }
}

function advance(call: Call, input: string): readonly AnswerEvent[] {
  const { ordinal: index } = call
  if (call.started) return input === '' ? [] : [{ type: 'tool-call-delta', index, input }]
  call.waiting += input
  if (call.name === undefined) return []
  call.started = true
  const start = { type: 'tool-call-start', index, id: call.id ?? freshId('call'), name: call.name } as const
  return call.waiting === '' ? [start] : [start, { type: 'tool-call-delta', index, input: call.waiting }]
}

function inputOf(called: JsonObject): string {
  const input = called['arguments'] ?? called['input'] ?? ''
  return typeof input === 'string' ? input : JSON.stringify(input)
}

function nonEmpty(value: unknown): string | undefined {
  const text = asString(value)
  return text === '' ? undefined : text
}
