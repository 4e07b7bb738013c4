import type { JsonObject } from '../../core/json.ts'
import { textOfMessage } from '../../core/messages.ts'
import { type Message, type Part, type Prompt } from '../../core/prompt.ts'

/** Fields of a body that give the model tools besides `tools`, in the formats of any vendor. */
const TOOL_FIELDS =
  'functions mcp_servers web_search_options web_search plugins search_parameters enable_search container toolConfig'.split(
    ' ',
  )
const TOOL_PARTS: ReadonlySet<Part['type']> = new Set(['tool-call', 'tool-result', 'opaque'])
/** Agents without native tools write their calls as text: XML tags, edit blocks or ReAct steps. */
const CALL_IN_TEXT =
  /<(?:tool_call|tool_use|function_calls|function=|invoke |execute_command|read_file|write_to_file|replace_in_file|apply_diff|list_files|search_files|attempt_completion|ask_followup_question|use_mcp_tool)\b|^<{5,9} SEARCH$|^Action Input:/m
const MAX_SEARCHED_RESPONSES = 8
const MAX_SEARCHED_LENGTH = 20_000

/**
 * Returns true if the prompt gives the model tools, or if an earlier turn has calls, results or items of an unknown
 * type. Calls that are written as text count if one of the newest responses has one.
 */
export function usesTools(prompt: Prompt): boolean {
  const known = results.get(prompt)
  if (known !== undefined) return known
  const result = hasTools(prompt)
  results.set(prompt, result)
  return result
}

/** Several tiers of a request ask. */
const results = new WeakMap<Prompt, boolean>()

function hasTools({ tools, messages, native }: Prompt): boolean {
  return (
    tools.length > 0 ||
    TOOL_FIELDS.some((field) => isDeclared(native.value[field])) ||
    messages.some(({ parts }) => parts.some(({ type }) => TOOL_PARTS.has(type))) ||
    hasCallInText(messages)
  )
}

function isDeclared(value: JsonObject[string]): boolean {
  return Array.isArray(value) ? value.length > 0 : value !== undefined && value !== null && value !== false
}

function hasCallInText(messages: readonly Message[]): boolean {
  const responses = messages.filter(({ role }) => role === 'assistant').slice(-MAX_SEARCHED_RESPONSES)
  return responses.some((response) => CALL_IN_TEXT.test(textOfMessage(response).slice(0, MAX_SEARCHED_LENGTH)))
}
