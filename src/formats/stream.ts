import type { AnswerEvent } from '../core/answer.ts'
import { GatewayError } from '../core/errors.ts'
import { isJsonObject, parseJson, type JsonObject } from '../core/json.ts'

/** Parses the data of a stream event. Throws `upstream` when it is not a JSON object. */
export function parseEvent(data: string): JsonObject {
  const value = parseJson(data)
  if (isJsonObject(value)) return value
  throw new GatewayError('upstream', 'The model provider sent a malformed event in its stream.')
}

/**
 * Returns the failure that an event reports. Servers that begin a stream before they validate the request put the status
 * into the code.
 */
export function streamFailure(
  code: unknown,
  event: JsonObject,
  readFailure: (status: number, body: JsonObject) => GatewayError,
): GatewayError {
  if (typeof code === 'number' && code >= 400 && code < 600) return readFailure(code, event)
  return new GatewayError('upstream', 'The model provider reported an error in the midst of its answer.')
}

/** The block of text or thinking that the next delta of its kind continues. */
export interface OpenBlock {
  open: 'text' | 'thinking' | undefined
}

/** Returns a delta, after the start of its block unless that block is open. */
export function blockEvents(state: OpenBlock, type: 'text' | 'thinking', text: string): readonly AnswerEvent[] {
  const isOpen = state.open === type
  state.open = type
  const delta: AnswerEvent = type === 'text' ? { type: 'text-delta', text } : { type: 'thinking-delta', text }
  return isOpen ? [delta] : [{ type: `${type}-start` }, delta]
}
