import { isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Prompt, Settings, Tool } from '../../core/prompt.ts'
import type { WrittenPrompt } from '../format.ts'
import { leftOut } from '../origin.ts'
import { originOf } from '../origins.ts'
import { replaceModel } from '../parse-body.ts'
import { asksForUsage, changedSettings, type Changes } from './settings.ts'
import { writeTool } from './tools.ts'
import { cannotCarry } from './write-content.ts'
import { writeMessages } from './write-messages.ts'

/**
 * The body for an upstream of this dialect. Nothing is added but the wish for usage in streams, by which streams are
 * billed; what nobody touched leaves as it came.
 */
export function writePrompt(prompt: Prompt, model: string): WrittenPrompt {
  return prompt.native.dialect === 'openai' ? writeOwn(prompt, model) : writeForeign(prompt, model)
}

function writeOwn(prompt: Prompt, model: string): WrittenPrompt {
  const { value, received } = prompt.native
  const changes: Changes = {
    ...(prompt.settings === prompt.native.settings ? {} : changedSettings(value, prompt.settings, model)),
    ...changedStream(value, prompt.stream),
    ...changedTools(value, prompt.tools),
    ...changedMessages(value, prompt),
  }
  const canSplice = received !== undefined && onlyAdds(value, changes)
  const body = canSplice ? replaceModel(received, model, changes) : JSON.stringify({ ...value, model, ...changes })
  return { body, ignored: [] }
}

function onlyAdds(value: JsonObject, changes: Changes): boolean {
  return Object.entries(changes).every(([field, now]) => now !== undefined && value[field] === undefined)
}

function changedStream(value: JsonObject, stream: boolean): Changes {
  const asked = value['stream'] === true
  if (!stream) return asked ? { stream: undefined, stream_options: undefined } : {}
  const usage = asksForUsage(value) ? {} : { stream_options: withUsage(value['stream_options']) }
  return asked ? usage : { stream: true, ...usage }
}

function withUsage(options: Json | undefined): JsonObject {
  return { ...(isJsonObject(options) ? options : {}), include_usage: true }
}

function changedTools(value: JsonObject, tools: readonly Tool[]): Changes {
  const before = [...listOf(value['tools']), ...listOf(value['functions'])]
  const isSame = before.length === tools.length && tools.every((tool, index) => tool.native.value === before[index])
  if (isSame) return {}
  return { tools: tools.length === 0 ? undefined : tools.map(writeTool), functions: undefined }
}

function changedMessages(value: JsonObject, prompt: Prompt): Changes {
  const before = listOf(value['messages'])
  const { messages } = prompt
  const isSame =
    before.length === messages.length && messages.every((message, index) => message.native?.value === before[index])
  return isSame ? {} : { messages: writeMessages(messages, (index) => `messages[${index}]`) }
}

function listOf(value: Json | undefined): readonly Json[] {
  return Array.isArray(value) ? (value as readonly Json[]) : []
}

/** A prompt of another format, written anew from what the canonical prompt says. */
function writeForeign(prompt: Prompt, model: string): WrittenPrompt {
  const origin = originOf(prompt)
  const hints = leftOut(prompt, origin.beyond(prompt), ({ param, what, details }) => cannotCarry(param, what, details))
  prompt.tools.forEach((tool, index) => {
    if (tool.parameters === undefined) throw cannotCarry(`tools[${index}]`, `the tool ${tool.name}`)
  })
  const body = {
    model,
    messages: writeMessages(prompt.messages, (index) => origin.pathOf(prompt, index)),
    ...(prompt.tools.length === 0 ? {} : { tools: prompt.tools.map(writeTool) }),
    ...changedSettings({}, foreignSettings(prompt.settings, prompt.tools.length > 0), model),
    ...(prompt.stream ? { stream: true, stream_options: { include_usage: true } } : {}),
  }
  return { body: JSON.stringify(body), ignored: prompt.settings.topK === undefined ? hints : [...hints, 'top_k'] }
}

/** This dialect knows no top_k, and refuses to hear of tools where there are none. */
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

/** A schema binds in the message format. Here it may only when no object has optional or further fields. */
function canBind(schema: Json): boolean {
  if (Array.isArray(schema)) return (schema as readonly Json[]).every(canBind)
  if (!isJsonObject(schema)) return true
  const { properties, required } = schema
  const named = isJsonObject(properties) ? Object.keys(properties) : []
  const isClosed = schema['type'] !== 'object' || schema['additionalProperties'] === false
  const isFull = named.every((name) => listOf(required).includes(name))
  return isClosed && isFull && Object.values(schema).every((inner) => canBind(inner ?? null))
}
