import type { FieldCosts } from './field-costs.ts'
import { nameSet } from './parse-body.ts'
import { promptTooLongError } from './scan-json.ts'
import type { MaybePromise } from '../core/async.ts'
import { asArray, isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import { COMPACTION_TRIGGER, type Dialect, type Message, type Part, type Prompt, type Tool } from '../core/prompt.ts'

/** `limit` is in UTF-16 code units. Only the parsed prompt shows whether a base64 string is media or text. */
export function checkPromptLength({ messages, tools }: Prompt, limit: number): void {
  let length = 0
  for (const { parts } of messages) for (const part of parts) length += partLength(part)
  for (const { native } of tools) length += totalStringLength(native.value)
  if (length > limit) throw promptTooLongError(limit)
}

function partLength(part: Part): number {
  switch (part.type) {
    case 'text':
    case 'thinking':
      return part.text.length
    case 'tool-call':
      return part.input.length
    case 'tool-result':
      return part.content.reduce((sum, inner) => sum + partLength(inner), 0)
    case 'document':
      return part.source.type === 'text' ? part.source.text.length : 0
    case 'image':
    case 'opaque':
      return 0
  }
}

function totalStringLength(value: Json | undefined): number {
  if (typeof value === 'string') return value.length
  if (typeof value !== 'object' || value === null) return 0
  const nested: readonly (Json | undefined)[] = Array.isArray(value) ? value : Object.values(value)
  return nested.reduce((sum: number, item) => sum + totalStringLength(item), 0)
}

/** Fields that cost nothing beyond their text and the output limit, by format. All other fields are examined. */
const SHARED_FIELDS =
  'model stream stream_options temperature top_p top_k tools tool_choice parallel_tool_calls metadata user ' +
  'prompt_cache_key '
const ORDINARY_FIELDS: Readonly<Record<Dialect, ReadonlySet<string>>> = {
  chat: nameSet(SHARED_FIELDS + 'messages max_tokens max_completion_tokens n stop response_format reasoning_effort'),
  messages: nameSet(SHARED_FIELDS + 'messages max_tokens system stop_sequences output_config cache_control'),
  responses: nameSet(SHARED_FIELDS + 'input instructions max_output_tokens text reasoning'),
}

export const NO_FIELD_COSTS: FieldCosts = { outputs: 1, extraOutputTokens: 0, optionalOutputTokens: 0, promptReads: 1 }

/** Synchronous for a body with ordinary fields only. */
export function fieldCostsOf({ native: { dialect, value: body } }: Pick<Prompt, 'native'>): MaybePromise<FieldCosts> {
  const ordinary = ORDINARY_FIELDS[dialect]
  let others: string[] | undefined
  for (const name in body) if (!ordinary.has(name)) (others ??= []).push(name)
  if (dialect === 'responses') {
    if (hasUnusualReasoning(body)) (others ??= []).push('reasoning')
    if (hasCompactionTrigger(body)) (others ??= []).push(COMPACTION_TRIGGER)
  }
  if (others === undefined) return NO_FIELD_COSTS
  const names = others
  return import('./field-costs.ts').then(({ costsOfFields }) => costsOfFields(body, names, dialect))
}

const ORDINARY_REASONING = nameSet('effort summary generate_summary context')

function hasUnusualReasoning({ reasoning }: JsonObject): boolean {
  if (!isJsonObject(reasoning)) return false
  for (const name in reasoning) if (!ORDINARY_REASONING.has(name)) return true
  return false
}

function hasCompactionTrigger({ input }: JsonObject): boolean {
  return asArray(input).some((item) => isJsonObject(item) && item['type'] === COMPACTION_TRIGGER)
}

/** Tools that the caller runs, unless they declare an `environment` that is not local. */
const LOCAL_TOOLS: ReadonlySet<string> = nameSet(
  'function custom namespace local_shell shell apply_patch computer computer_use_preview',
)
/** Tools of the messages format that the vendor defines and the caller runs. */
const LOCAL_TOOL_VERSIONS = /^(bash|text_editor|computer|memory|computer_toolset|browser_toolset)_\d+$/
const SEARCHING_MODEL = /:online$/
const REFERENCE_FIELD = /^(file_id|\w*_?ur[li])$/

/** If the vendor reads data outside the body or runs tools, the body size does not bound the number of tokens. */
export function findVendorWork({ model, tools, messages }: Prompt, costs: FieldCosts): string | undefined {
  if (SEARCHING_MODEL.test(model)) return 'model'
  return costs.vendorWork ?? findVendorTool(tools) ?? findExternalContent(messages)
}

function findVendorTool(tools: readonly Tool[]): string | undefined {
  const index = tools.findIndex(({ native }) => isRunByVendor(native.value))
  return index === -1 ? undefined : `tools[${index}]`
}

function isRunByVendor(tool: JsonObject): boolean {
  const { type, environment } = tool
  if (typeof type !== 'string') return false
  if (isJsonObject(environment) && environment['type'] !== 'local') return true
  return (!LOCAL_TOOLS.has(type) && !LOCAL_TOOL_VERSIONS.test(type)) || declaresVendorTool(tool)
}

function findExternalContent(messages: readonly Message[]): string | undefined {
  const index = messages.findIndex(
    ({ parts, native }) => parts.some(hasExternalReference) || isJsonObject(native?.value['audio']),
  )
  return index === -1 ? undefined : `messages[${index}]`
}

function hasExternalReference(part: Part): boolean {
  switch (part.type) {
    case 'image':
    case 'document':
      return part.source.type === 'url' || part.source.type === 'file'
    case 'tool-result':
      return part.content.some(hasExternalReference)
    case 'opaque': {
      const { value } = part.native
      return isReferenceItem(value) || declaresVendorTool(value) || containsReference(value)
    }
    default:
      return false
  }
}

function isReferenceItem({ type, role, id }: JsonObject): boolean {
  return type === 'item_reference' || (type === undefined && role === undefined && id !== undefined)
}

/** For groups of tools, and for items and blocks that add tools to a conversation. */
function declaresVendorTool({ tools, tool: added }: JsonObject): boolean {
  const definition = isJsonObject(added) ? added['definition'] : undefined
  if (isJsonObject(definition) && isRunByVendor(definition)) return true
  return asArray(tools).some((tool) => isJsonObject(tool) && isRunByVendor(tool))
}

function containsReference(value: Json | undefined, name = ''): boolean {
  if (typeof value === 'string') return REFERENCE_FIELD.test(name) && !value.startsWith('data:')
  if (Array.isArray(value)) return (value as readonly Json[]).some((element) => containsReference(element))
  return isJsonObject(value) && Object.entries(value).some(([key, field]) => containsReference(field, key))
}

export function isBackground({ native }: Prompt): boolean {
  return native.dialect === 'responses' && native.value['background'] === true
}
