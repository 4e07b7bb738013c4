import { GatewayError } from '../core/errors.ts'
import { looseName, type Json, type JsonObject } from '../core/json.ts'
import type { Permissions } from './virtual-key.ts'

/** Fields of any format that choose a model, the length of the answer, or tools, or that hold the prompt. */
const KNOWN_FIELDS = [
  'model',
  'messages',
  'system',
  'input',
  'instructions',
  'max_tokens',
  'max_completion_tokens',
  'max_output_tokens',
  'n',
  'best_of',
  'stream',
  'tools',
  'tool_choice',
  'functions',
  'function_call',
  'mcp_servers',
  'web_search_options',
  'response_format',
  'thinking',
  'reasoning',
  'reasoning_effort',
  'stop',
  'stop_sequences',
  'previous_response_id',
  'conversation',
  'prompt',
]

/** Fields that make vendors choose other models or run their own tools. */
const VENDOR_SWITCHES = [
  'models',
  'route',
  'preset',
  'fallbacks',
  'fallback_models',
  'engine',
  'deployment',
  'deployment_id',
  'extra_body',
  'plugins',
  'search_parameters',
  'enable_search',
  'web_search',
  'container',
]

const KNOWN: ReadonlySet<string> = new Set(KNOWN_FIELDS)
const SWITCHES: ReadonlySet<string> = new Set(VENDOR_SWITCHES.map(looseName))
const LOOSE_KNOWN: ReadonlyMap<string, string> = new Map(KNOWN_FIELDS.map((name) => [looseName(name), name]))

/**
 * Throws for fields that could bypass the restrictions of a key: another spelling of a checked field (`MAX_TOKENS`,
 * `maxTokens`), and switches of the vendor. A key without restrictions may send them.
 */
export function checkFields(permissions: Permissions, body: JsonObject): void {
  const { allowedModels, maxTokens, disableTools } = permissions
  if (allowedModels === undefined && maxTokens === undefined && disableTools !== true) return
  for (const [name, value] of Object.entries(body)) {
    if (KNOWN.has(name) || isUnset(value)) continue
    const spelled = looseName(name)
    const meant = LOOSE_KNOWN.get(spelled)
    if (meant !== undefined) throw refused(name, `it differs from ${meant} only by its spelling. Send ${meant} instead`)
    if (SWITCHES.has(spelled)) throw refused(name, 'it lets the vendor choose models or tools. Leave it out')
  }
}

function isUnset(value: Json | undefined): boolean {
  return value === undefined || value === null || value === false || (Array.isArray(value) && value.length === 0)
}

const MAX_SHOWN = 100

function refused(name: string, reason: string): GatewayError {
  const param = name.slice(0, MAX_SHOWN)
  const message = `This key is restricted and may not send the field ${JSON.stringify(param)}: ${reason}.`
  return new GatewayError('model-not-allowed', message, { param, code: 'field_not_allowed' })
}
