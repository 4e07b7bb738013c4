import type { Json, JsonObject } from '../../core/json.ts'
import type { WriteContext } from '../format.ts'

/** Returns the common part of the ids of a response and its items. */
export function stemOf(id: string): string {
  return id.replace(/^(?:req|resp|msg|chatcmpl)[_-]/, '').replace(/[^\w-]/g, '_') || '0'
}

export function responseId(stem: string): string {
  return `resp_${stem}`
}

/** Item ids hold the request's stem: a reference to an item leads to the response that it is in. */
export function itemId(kind: 'msg' | 'fc' | 'rs', stem: string, index: number): string {
  return `${kind}_${stem}_${index}`
}

/** Returns the id of the response that contains an item; undefined for an id that the gateway did not create. */
export function responseOfItem(id: string): string | undefined {
  const stem = /^(?:msg|fc|rs)_([\w-]+)_\d+$/.exec(id)?.[1]
  return stem === undefined ? undefined : responseId(stem)
}

/** Returns the fields of the request that a response repeats, with the vendor's defaults. */
export function responseFrame(context: WriteContext, id: string, model: string): JsonObject {
  const asked = context.asked ?? context.prompt.native.value
  const { settings } = context.prompt
  const echo = (field: string, otherwise: Json): Json => asked[field] ?? otherwise
  return {
    id,
    object: 'response',
    created_at: context.created,
    background: false,
    error: null,
    instructions: echo('instructions', null),
    max_output_tokens: echo('max_output_tokens', null),
    max_tool_calls: echo('max_tool_calls', null),
    metadata: echo('metadata', asked['client_metadata'] ?? {}),
    model,
    parallel_tool_calls: echo('parallel_tool_calls', true),
    previous_response_id: echo('previous_response_id', null),
    reasoning: echo('reasoning', { effort: null, summary: null }),
    store: echo('store', true),
    temperature: settings.temperature ?? null,
    text: echo('text', { format: { type: 'text' } }),
    tool_choice: echo('tool_choice', 'auto'),
    tools: echo('tools', []),
    top_p: settings.topP ?? null,
    truncation: echo('truncation', 'disabled'),
    user: echo('user', null),
  }
}
