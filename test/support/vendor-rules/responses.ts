import type { JsonObject } from '../../../src/core/json.ts'
import {
  blocksIn,
  changedFields,
  indexesAroundUnknown,
  missingInOrder,
  objectsIn,
  reordered,
  repeatedIds,
  textOf,
  typeOf,
  type Violations,
} from './shared.ts'

const CALLS = /^(?:function|custom_tool|local_shell|shell|apply_patch|computer|tool_search)_call$/
const OUTPUTS = /^(?:function|custom_tool|local_shell|shell|apply_patch|computer)_call_output$|^tool_search_output$/
const HOSTED = /^(?:web_search|file_search|code_interpreter|image_generation)_call$|^mcp_call$|^reasoning$|^message$/
/** Definitions, approvals and compacted conversations. */
const FIXED = /^(?:additional_tools|mcp_list_tools|mcp_approval_\w+|tool_search_\w+|compaction(?:_summary)?)$/
const KNOWN_BLOCKS = /^(?:input_text|output_text|refusal|input_image|input_file|input_audio|text)$/
const EDITABLE = /^(?:function|custom_tool)_call_output$/

const kindOf = (item: JsonObject): string => typeOf(item) || 'message'
const isMessage = (item: JsonObject): boolean => kindOf(item) === 'message'
const isUnknown = (item: JsonObject): boolean => {
  const kind = kindOf(item)
  if (![CALLS, OUTPUTS, HOSTED, FIXED].some((known) => known.test(kind))) return true
  return [...blocksIn(item['content']), ...blocksIn(item['output'])].some(
    (block) =>
      kind !== 'computer_call_output' &&
      kind !== 'reasoning' &&
      kind !== 'shell_call_output' &&
      !KNOWN_BLOCKS.test(typeOf(block)),
  )
}

/** The rules of the responses format. */
export function responsesViolations(before: JsonObject, after: JsonObject): Violations {
  const received = objectsIn(before['input'])
  const sent = objectsIn(after['input'])
  const sentTexts = sent.map(textOf)
  const around = indexesAroundUnknown(received, isUnknown, (item) => isMessage(item) && item['role'] === 'user')
  const fixed = received.filter(
    (item) => FIXED.test(kindOf(item)) || (isMessage(item) && /^(?:system|developer)$/.test(String(item['role']))),
  )
  const question = received.findLast((item) => isMessage(item) && item['role'] === 'user')
  return [
    ...changedFields(before, after, 'input'),
    ...unpairedCalls(sent),
    ...missingInOrder(fixed.map(textOf), sentTexts, 'a definition or an instruction'),
    ...missingInOrder(
      around.map((index) => textOf(received[index])).filter((text) => !isInstruction(text)),
      sentTexts,
      'an item around an unknown one',
    ),
    ...(question === undefined ? [] : missingInOrder([textOf(question)], sentTexts, 'the last user message')),
    ...reordered(received.map(textOf), sentTexts),
    ...sent.flatMap((item) => changedItem(item, received)),
    ...looseReasoning(received, sent),
    ...missingApprovals(sent),
    ...repeatedIds(sent, 'id'),
    ...repeatedIds(
      sent.filter((item) => CALLS.test(kindOf(item))),
      'call_id',
    ),
    ...emptyMessages(sent),
  ]
}

const isInstruction = (text: string): boolean => /"role":"(?:system|developer)"/.test(text)
const idOf = (item: JsonObject): string => String(item['call_id'] ?? item['id'])

function unpairedCalls(sent: readonly JsonObject[]): Violations {
  const found: string[] = []
  const open = new Set<string>()
  for (const item of sent) {
    if (CALLS.test(kindOf(item))) open.add(idOf(item))
    else if (OUTPUTS.test(kindOf(item)) && !open.delete(idOf(item)))
      found.push(`an output without its call: ${idOf(item)}`)
  }
  return [...found, ...[...open].map((id) => `a call without its output: ${id}`)]
}

/** Only texts of messages and the output of functions and custom tools may differ. */
function changedItem(item: JsonObject, received: readonly JsonObject[]): Violations {
  if (isMessage(item)) return []
  const { output: _, ...fields } = item
  const isReceived = received.some((other) => {
    if (!EDITABLE.test(kindOf(item))) return textOf(other) === textOf(item)
    const { output: _old, ...otherFields } = other
    return textOf(otherFields) === textOf(fields)
  })
  return isReceived ? [] : [`an item is changed: ${textOf(fields).slice(0, 200)}`]
}

/** Reasoning is followed by the item that it led to, and that item still follows its reasoning. */
function looseReasoning(received: readonly JsonObject[], sent: readonly JsonObject[]): Violations {
  const found: string[] = []
  const texts = received.map(textOf)
  for (const [index, item] of sent.entries()) {
    const at = texts.indexOf(textOf(item))
    if (at === -1) continue
    const next = received[at + 1]
    if (kindOf(item) === 'reasoning' && next !== undefined && textOf(next) !== textOf(sent[index + 1]))
      found.push(`reasoning lost the item that follows it: ${textOf(item).slice(0, 100)}`)
    const previous = received[at - 1]
    if (kindOf(item) === 'reasoning' || previous === undefined || kindOf(previous) !== 'reasoning') continue
    if (textOf(previous) !== textOf(sent[index - 1]))
      found.push(`an item lost its reasoning: ${textOf(item).slice(0, 100)}`)
  }
  return found
}

function emptyMessages(sent: readonly JsonObject[]): Violations {
  return sent
    .filter((item) => isMessage(item) && (item['content'] === '' || blocksIn(item['content']).length === 0))
    .map((item) => `a message is empty: ${textOf(item)}`)
}

function missingApprovals(sent: readonly JsonObject[]): Violations {
  const requests = new Set(sent.filter((item) => kindOf(item) === 'mcp_approval_request').map(({ id }) => id))
  return sent.flatMap(({ approval_request_id: id }) =>
    typeof id === 'string' && !requests.has(id) ? [`the approval request ${id} is missing`] : [],
  )
}
