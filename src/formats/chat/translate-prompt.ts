import { asArray, isJsonObject, type Json } from '../../core/json.ts'
import type { Prompt, Settings } from '../../core/prompt.ts'
import type { WrittenPrompt } from '../format.ts'
import { omittedFields, type SourceFormat } from '../translation.ts'
import { changedSettings, writeTool } from './settings.ts'
import { cannotCarry, writeMessages } from './upstream.ts'

/**
 * Writes a prompt of another format as a chat request. Throws `invalid-request` for content that this format cannot
 * express.
 */
export function translateToChat(prompt: Prompt, model: string, source: SourceFormat): WrittenPrompt {
  const hints = omittedFields(prompt, source, cannotCarry)
  const body = {
    model,
    messages: writeMessages(prompt.messages, (index) => source.pathOf(prompt, index)),
    ...(prompt.tools.length === 0 ? {} : { tools: prompt.tools.map(writeTool) }),
    ...changedSettings({}, foreignSettings(prompt.settings, prompt.tools.length > 0), model),
    ...(prompt.stream ? { stream: true, stream_options: { include_usage: true } } : {}),
  }
  return { body: JSON.stringify(body), ignored: prompt.settings.topK === undefined ? hints : [...hints, 'top_k'] }
}

/** The chat format has no top_k, and rejects tool settings without tools. */
function foreignSettings(settings: Settings, hasTools: boolean): Settings {
  const { topK: _topK, toolChoice, parallelToolCalls, shape, ...others } = settings
  return {
    ...others,
    ...(hasTools && toolChoice !== undefined ? { toolChoice } : {}),
    ...(hasTools && parallelToolCalls !== undefined ? { parallelToolCalls } : {}),
    ...(shape === undefined
      ? {}
      : { shape: shape.type === 'schema' ? { strict: canBind(shape.schema), ...shape } : shape }),
  }
}

/**
 * A schema is strict in the message format. Here it can be strict only when no object has optional or additional
 * fields.
 */
function canBind(schema: Json): boolean {
  if (Array.isArray(schema)) return (schema as readonly Json[]).every(canBind)
  if (!isJsonObject(schema)) return true
  const { properties, required } = schema
  const named = isJsonObject(properties) ? Object.keys(properties) : []
  const isClosed = schema['type'] !== 'object' || schema['additionalProperties'] === false
  const isFull = named.every((name) => asArray(required).includes(name))
  return isClosed && isFull && Object.values(schema).every((inner) => canBind(inner ?? null))
}
