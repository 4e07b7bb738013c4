import { isUnset, nameSet } from './parse-body.ts'
import { promptTooLongError } from './scan-json.ts'
import { asArray, isJsonObject, type Json, type JsonObject, normalizeName } from '../core/json.ts'
import type { Message, Part, Prompt, Tool } from '../core/prompt.ts'

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

/** Body fields that can change the price, by normalized name, with the values that cost no more than the list price. */
const LIST_PRICE_VALUES: ReadonlyMap<string, readonly Json[]> = new Map([
  ['servicetier', ['auto', 'default', 'standard', 'standard_only', 'on_demand', 'flex']],
  ['speed', ['standard']],
  ['inferencegeo', ['global', 'not_available']],
])

export function findSurchargedField({ native: { value: body } }: Prompt): string | undefined {
  for (const name in body) {
    const normalized = cachedNormalizedName(name)
    const values = LIST_PRICE_VALUES.get(normalized)
    const value = body[name] ?? null
    // The beta of the long context window raises the price. Some vendors accept betas in the body.
    if (normalized === 'anthropicbeta' && JSON.stringify(value).includes('context-1m')) return name
    if (values !== undefined && !isUnset(value) && !values.includes(value)) return name
  }
  return undefined
}

const VENDOR_FIELDS: ReadonlySet<string> = nameSet(
  'mcpservers container websearchoptions websearch searchparameters enablesearch plugins thread conversation ' +
    'previousresponseid',
)

/** Tools that the caller runs, unless they declare an `environment` that is not local. */
const LOCAL_TOOLS: ReadonlySet<string> = nameSet(
  'function custom namespace local_shell shell apply_patch computer computer_use_preview',
)
/** Tools of the messages format that the vendor defines and the caller runs. */
const LOCAL_TOOL_VERSIONS = /^(bash|text_editor|computer|memory)_\d+$/
const SEARCHING_MODEL = /:online$/
const REFERENCE_FIELD = /^(file_id|\w*_?ur[li])$/

/** If the vendor reads data outside the body or runs tools, the body size does not bound the number of tokens. */
export function findVendorWork(prompt: Prompt): string | undefined {
  return findVendorField(prompt) ?? findVendorTool(prompt.tools) ?? findExternalContent(prompt.messages)
}

function findVendorField({ native, model }: Prompt): string | undefined {
  if (SEARCHING_MODEL.test(model)) return 'model'
  const { value } = native
  if (native.dialect === 'responses' && isJsonObject(value['prompt'])) return 'prompt'
  for (const name in value) if (VENDOR_FIELDS.has(cachedNormalizedName(name)) && !isUnset(value[name])) return name
  return undefined
}

const normalizedNames = new Map<string, string>()
const MAX_CACHED_NAMES = 200
const MAX_CACHED_NAME_LENGTH = 40

function cachedNormalizedName(name: string): string {
  const cached = normalizedNames.get(name)
  if (cached !== undefined) return cached
  const normalized = normalizeName(name)
  if (name.length <= MAX_CACHED_NAME_LENGTH && normalizedNames.size < MAX_CACHED_NAMES)
    normalizedNames.set(name, normalized)
  return normalized
}

function findVendorTool(tools: readonly Tool[]): string | undefined {
  const index = tools.findIndex(({ native }) => isRunByVendor(native.value))
  return index === -1 ? undefined : `tools[${index}]`
}

function isRunByVendor({ type, environment }: JsonObject): boolean {
  if (typeof type !== 'string') return false
  if (isJsonObject(environment) && environment['type'] !== 'local') return true
  return !LOCAL_TOOLS.has(type) && !LOCAL_TOOL_VERSIONS.test(type)
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

function declaresVendorTool({ tools }: JsonObject): boolean {
  return asArray(tools).some((tool) => isJsonObject(tool) && isRunByVendor(tool))
}

function containsReference(value: Json | undefined, name = ''): boolean {
  if (typeof value === 'string') return REFERENCE_FIELD.test(name) && !value.startsWith('data:')
  if (Array.isArray(value)) return (value as readonly Json[]).some((element) => containsReference(element))
  return isJsonObject(value) && Object.entries(value).some(([key, field]) => containsReference(field, key))
}
