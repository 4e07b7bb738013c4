import { GatewayError } from '../core/errors.ts'
import type { JsonObject } from '../core/json.ts'
import { matchesModel, splitModelName, type Model } from '../core/model.ts'
import type { Part, Prompt } from '../core/prompt.ts'
import { checkFields } from './restricted-fields.ts'
import type { ProviderConfig, VirtualKey } from './virtual-key.ts'

/** Maximum number of characters of a name in an error message. */
const MAX_SHOWN = 100

/** Body fields other than `tools` that declare tools. */
const TOOL_FIELDS = ['functions', 'mcp_servers', 'web_search_options'] as const

/** Model names that make the vendor search before it answers. */
const SEARCHING_MODEL = /:online$/

/**
 * True when the key may use the model: by its permissions, and (for `<provider>/<model_id>`) by its provider
 * configurations. `also` are other names of the same model; one permitted name suffices.
 */
export function mayUse(key: VirtualKey, name: string, also: readonly string[] = []): boolean {
  if (key.permissions.allowedModels === undefined && key.providers.length === 0) return true
  return [name, ...also].some((candidate) => isPermitted(key, candidate))
}

function isPermitted(key: VirtualKey, name: string): boolean {
  const { allowedModels } = key.permissions
  if (allowedModels !== undefined && !matchesModel(allowedModels, name)) return false
  const parts = splitModelName(name)
  if (parts === undefined || key.providers.length === 0) return true
  return key.providers.some((config) => config.provider === parts.provider && servesModel(config, parts.id))
}

/** Returns true when a provider configuration of the key allows this model id. */
export function servesModel(config: ProviderConfig, id: string): boolean {
  const { allowedModels, provider } = config
  return (
    allowedModels.length === 0 || matchesModel(allowedModels, id) || matchesModel(allowedModels, `${provider}/${id}`)
  )
}

/** Throws if the key does not permit the model, the tools or the length of the answer. */
export function checkAccess(
  key: VirtualKey,
  asked: { readonly prompt: Prompt; readonly modelName: string; readonly also?: readonly string[] },
): void {
  const { prompt, modelName } = asked
  if (!mayUse(key, modelName, asked.also)) {
    throw new GatewayError(
      'model-not-allowed',
      `This key may not use the model ${modelName.slice(0, MAX_SHOWN)}. GET /v1/models lists the models of this key.`,
      { param: 'model' },
    )
  }
  checkFields(key.permissions, prompt.native.value)
  if (key.permissions.disableTools === true && hasTools(prompt)) {
    throw new GatewayError('tools-disabled', 'This key may not use tools. Send the request without them.', {
      param: 'tools',
    })
  }
  checkLength(prompt.settings.maxTokens, key.permissions.maxTokens)
}

function hasTools(prompt: Prompt): boolean {
  return (
    prompt.tools.length > 0 ||
    SEARCHING_MODEL.test(prompt.model) ||
    TOOL_FIELDS.some((field) => isGiven(prompt.native.value, field)) ||
    prompt.messages.some(({ parts }) => parts.some(bringsTools))
  )
}

/** Items of a conversation may declare tools, too (`additional_tools`). */
function bringsTools(part: Part): boolean {
  return part.type === 'opaque' && isGiven(part.native.value, 'tools')
}

function isGiven(body: JsonObject, field: string): boolean {
  const value = body[field]
  return Array.isArray(value) ? value.length > 0 : value !== undefined && value !== null
}

function checkLength(asked: number | undefined, permitted: number | undefined): void {
  if (asked === undefined || permitted === undefined || asked <= permitted) return
  throw new GatewayError(
    'max-tokens-exceeded',
    `max_tokens is ${asked}; this key may request at most ${permitted}. Lower max_tokens.`,
    { param: 'max_tokens' },
  )
}

/** Returns the output limit in tokens: that of the request, or else the smaller maximum of the key and the model. */
export function greatestAnswer(key: VirtualKey, prompt: Prompt, model: Model): number {
  return prompt.settings.maxTokens ?? Math.min(key.permissions.maxTokens ?? Infinity, model.maxOutputTokens)
}
