/** What restricted keys may send. */
import { GatewayError } from '../core/errors.ts'
import { normalizeName, type Json, type JsonObject } from '../core/json.ts'
import { modelsOfTools, type Prompt } from '../core/prompt.ts'
import { mayUse, type Permissions, type VirtualKey } from './virtual-key.ts'

const MAX_SHOWN_LENGTH = 100

const TOOL_FIELDS = ['tools', 'functions', 'mcp_servers', 'web_search_options'] as const

/** Suffix of the names of models that search before they answer. */
const SEARCH_MODEL_SUFFIX = /:online$/

/** What the permissions of a key may restrict in a request. */
export interface RequestedAccess {
  readonly modelName: string
  /** @default the name of the model */
  readonly routeNames?: readonly string[]
  /** The fields of the body. */
  readonly fields: JsonObject
  readonly maxTokens: number | undefined
  /** Absent if the body has no messages. */
  readonly prompt?: Prompt
}

/** Throws if the key may not send the request. */
export function checkAccess(key: VirtualKey, request: RequestedAccess): void {
  const { modelName, routeNames, fields, prompt } = request
  if (!mayUse(key, modelName, routeNames)) throw modelNotAllowed(modelName, 'model')
  const { permissions, providers } = key
  const restrictsModels =
    permissions.allowedModels !== undefined || providers.some(({ allowedModels }) => allowedModels.length > 0)
  checkFields(permissions, restrictsModels, fields)
  if (restrictsModels && prompt !== undefined) checkToolModels(key, prompt, routeNames ?? [modelName])
  if (permissions.disableTools === true && hasTools(request)) {
    throw new GatewayError('tools-disabled', 'This key may not use tools. Send the request without them.', {
      param: 'tools',
    })
  }
  checkMaxTokens(request.maxTokens, permissions.maxTokens)
}

/** The vendor of a route calls the models that tools name, such as an adviser. */
function checkToolModels(key: VirtualKey, prompt: Prompt, routeNames: readonly string[]): void {
  for (const id of modelsOfTools(prompt)) {
    const names = routeNames.map((name) => `${name.slice(0, name.indexOf('/'))}/${id}`)
    if (!mayUse(key, id, names)) throw modelNotAllowed(id, 'tools')
  }
}

function modelNotAllowed(name: string, param: string): GatewayError {
  return new GatewayError(
    'model-not-allowed',
    `This key may not use the model ${name.slice(0, MAX_SHOWN_LENGTH)}. GET /v1/models lists the models of this key.`,
    { param },
  )
}

function hasTools({ modelName, fields, prompt }: RequestedAccess): boolean {
  if (TOOL_FIELDS.some((field) => declaresTools(fields, field))) return true
  if (SEARCH_MODEL_SUFFIX.test(prompt?.model ?? modelName)) return true
  if (prompt === undefined) return false
  return (
    prompt.tools.length > 0 ||
    prompt.messages.some(({ parts }) =>
      parts.some((part) => part.type === 'opaque' && declaresTools(part.native.value, 'tools')),
    )
  )
}

function declaresTools(body: JsonObject, field: string): boolean {
  const value = body[field]
  return Array.isArray(value) ? value.length > 0 : value !== undefined && value !== null
}

function checkMaxTokens(maxTokens: number | undefined, permittedTokens: number | undefined): void {
  if (maxTokens === undefined || permittedTokens === undefined || maxTokens <= permittedTokens) return
  throw new GatewayError(
    'max-tokens-exceeded',
    `max_tokens is ${maxTokens}; this key may request at most ${permittedTokens}. Lower max_tokens.`,
    { param: 'max_tokens' },
  )
}

const KNOWN_FIELDS = (
  'model messages system input instructions max_tokens max_completion_tokens max_output_tokens n best_of ' +
  'stream tools tool_choice functions function_call mcp_servers web_search_options response_format thinking ' +
  'reasoning reasoning_effort stop stop_sequences previous_response_id conversation prompt'
).split(' ')

const VENDOR_SWITCHES = (
  'models route preset fallbacks fallback_models engine deployment deployment_id extra_body plugins ' +
  'search_parameters enable_search web_search container'
).split(' ')

const KNOWN_NAMES: ReadonlySet<string> = new Set(KNOWN_FIELDS)
const NORMALIZED_SWITCHES: ReadonlySet<string> = new Set(VENDOR_SWITCHES.map(normalizeName))
const KNOWN_BY_NORMALIZED_NAME: ReadonlyMap<string, string> = new Map(
  KNOWN_FIELDS.map((name) => [normalizeName(name), name]),
)

/** Other spellings of known fields (`MAX_TOKENS`) and vendor switches could bypass the restrictions of a key. */
function checkFields({ maxTokens, disableTools }: Permissions, restrictsModels: boolean, body: JsonObject): void {
  if (!restrictsModels && maxTokens === undefined && disableTools !== true) return
  for (const [name, value] of Object.entries(body)) {
    if (KNOWN_NAMES.has(name) || isUnset(value)) continue
    const normalized = normalizeName(name)
    const knownName = KNOWN_BY_NORMALIZED_NAME.get(normalized)
    if (knownName !== undefined)
      throw fieldNotAllowedError(name, `it differs from ${knownName} only in spelling. Send ${knownName} instead`)
    if (NORMALIZED_SWITCHES.has(normalized))
      throw fieldNotAllowedError(name, 'it lets the vendor choose other models or run its own tools. Remove the field')
  }
}

function isUnset(value: Json | undefined): boolean {
  return value === undefined || value === null || value === false || (Array.isArray(value) && value.length === 0)
}

function fieldNotAllowedError(name: string, reason: string): GatewayError {
  const param = name.slice(0, MAX_SHOWN_LENGTH)
  const message = `This key is restricted and may not send the field ${JSON.stringify(param)}: ${reason}.`
  return new GatewayError('model-not-allowed', message, { param, code: 'field_not_allowed' })
}
