import { isJsonObject, type JsonObject } from '../../../src/core/json.ts'
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

const KNOWN_BLOCKS = new Set(['text', 'image_url', 'file', 'input_audio', 'refusal'])

const hasUnknownBlock = ({ content }: JsonObject): boolean =>
  blocksIn(content).some((block) => !KNOWN_BLOCKS.has(typeOf(block)))

/** The rules of the chat format. */
export function chatViolations(before: JsonObject, after: JsonObject): Violations {
  const received = objectsIn(before['messages'])
  const sent = objectsIn(after['messages'])
  const sentTexts = sent.map(textOf)
  const fixed = received.filter(({ role }) => role === 'system' || role === 'developer')
  const around = indexesAroundUnknown(received, hasUnknownBlock, ({ role }) => role === 'user')
  const question = received.findLast(({ role }) => role === 'user')
  return [
    ...changedFields(before, after, 'messages'),
    ...unpairedCalls(sent),
    ...missingInOrder(fixed.map(textOf), sentTexts, 'a system message'),
    ...missingInOrder(
      around.map((index) => textOf(received[index])),
      sentTexts,
      'a message around an unknown block',
    ),
    ...(question === undefined ? [] : missingInOrder([textOf(question)], sentTexts, 'the last user message')),
    ...reordered(received.map(textOf), sentTexts),
    ...sent.flatMap((message) => changedMessage(message, received)),
    ...repeatedIds(
      sent.flatMap(({ tool_calls: calls }) => objectsIn(calls)),
      'id',
    ),
    ...repeatedIds(sent, 'tool_call_id'),
    ...sent.filter(isEmpty).map((message) => `a message is empty: ${textOf(message)}`),
  ]
}

function isEmpty({ role, content, tool_calls: calls, function_call: call, audio }: JsonObject): boolean {
  if (role === 'assistant' && (calls !== undefined || call !== undefined || audio !== undefined)) return false
  return content === undefined || content === null || content === '' || (Array.isArray(content) && content.length === 0)
}

function callIdsOf({ role, tool_calls: calls }: JsonObject): readonly string[] {
  return role === 'assistant' ? objectsIn(calls).map(({ id }) => String(id)) : []
}

/** The results of all calls of a message follow it directly, each once. */
function unpairedCalls(sent: readonly JsonObject[]): Violations {
  const found: string[] = []
  let open: string[] = []
  let openFunction: string | undefined
  const close = (): void => {
    if (open.length > 0) found.push(`calls without results: ${open.join(', ')}`)
    if (openFunction !== undefined) found.push(`a function call without its result: ${openFunction}`)
    open = []
    openFunction = undefined
  }
  for (const message of sent) {
    if (message['role'] === 'tool') {
      const id = String(message['tool_call_id'])
      if (open.includes(id)) open = open.filter((other) => other !== id)
      else found.push(`a result without its call: ${id}`)
    } else if (message['role'] === 'function') {
      if (message['name'] !== openFunction) found.push(`a function result without its call: ${textOf(message['name'])}`)
      openFunction = undefined
    } else {
      close()
      open = [...callIdsOf(message)]
      const call = message['function_call']
      openFunction = isJsonObject(call) ? String(call['name']) : undefined
    }
  }
  return found
}

/** A received call keeps all fields of its message but the text; a received result keeps all but its content. */
function changedMessage(message: JsonObject, received: readonly JsonObject[]): Violations {
  const { content: _, ...fields } = message
  const isCall = message['tool_calls'] !== undefined || message['function_call'] !== undefined
  const isResult = message['role'] === 'tool' || message['role'] === 'function'
  const isReasoned = message['reasoning_content'] !== undefined
  if (!isCall && !isResult && !isReasoned) return []
  const isReceived = received.some(({ content: _old, ...others }) => textOf(others) === textOf(fields))
  return isReceived ? [] : [`fields of a message are changed: ${textOf(fields).slice(0, 200)}`]
}
