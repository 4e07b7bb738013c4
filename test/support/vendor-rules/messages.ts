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

const SERVER_RESULTS =
  /^(?:web_search|web_fetch|code_execution|bash_code_execution|text_editor_code_execution|tool_search|mcp)_tool_result$/
/** Definitions, and blocks that later ones depend on. */
const FIXED_BLOCKS = /^(?:tool_search_tool_result|container_upload|compaction)$/
const KNOWN_BLOCKS =
  /^(?:text|image|document|search_result|tool_use|tool_result|thinking|redacted_thinking|server_tool_use|mcp_tool_use)$/

const isUnknown = (block: JsonObject): boolean => {
  const type = typeOf(block)
  return !KNOWN_BLOCKS.test(type) && !SERVER_RESULTS.test(type) && !FIXED_BLOCKS.test(type)
}
const isAnyUnknown = (block: JsonObject): boolean =>
  isUnknown(block) ||
  (typeOf(block) === 'tool_result' &&
    blocksIn(block['content']).some((inner) => isUnknown(inner) && typeOf(inner) !== 'tool_reference'))
const isPlainUser = ({ role, content }: JsonObject): boolean =>
  role === 'user' && !blocksIn(content).some((block) => typeOf(block) === 'tool_result')

/** The rules of the messages format. */
export function messagesViolations(before: JsonObject, after: JsonObject): Violations {
  const received = objectsIn(before['messages'])
  const sent = objectsIn(after['messages'])
  const receivedBlocks = received.flatMap(({ content }) => blocksIn(content))
  const sentBlocks = sent.flatMap(({ content }) => blocksIn(content))
  const sentTexts = sentBlocks.map(textOf)
  const around = indexesAroundUnknown(
    received,
    ({ content }) => blocksIn(content).some(isAnyUnknown),
    isPlainUser,
  ).flatMap((index) => blocksIn(received[index]?.['content']))
  const question = received.findLast(
    ({ role, content }) => role === 'user' && blocksIn(content).some((block) => typeOf(block) !== 'tool_result'),
  )
  const fixed = receivedBlocks.filter(
    (block) =>
      FIXED_BLOCKS.test(typeOf(block)) ||
      (typeOf(block) === 'tool_result' &&
        blocksIn(block['content']).some((inner) => typeOf(inner) === 'tool_reference')),
  )
  return [
    ...changedFields(before, after, 'messages'),
    ...wrongRoles(sent),
    ...(misplacedSystem(received).length === 0 ? misplacedSystem(sent) : []),
    ...unpairedCalls(sent),
    ...unpairedServerCalls(receivedBlocks, sentBlocks),
    ...missingInOrder(fixed.map(textOf), sentTexts, 'a definition'),
    ...missingInOrder(around.map(textOf), sentTexts, 'a block around an unknown one'),
    ...missingInOrder(
      blocksIn(question?.['content'])
        .filter((block) => typeOf(block) !== 'tool_result')
        .map(textOf),
      sentTexts,
      'the last user message',
    ),
    ...reordered(receivedBlocks.filter(isIdentified).map(textOf), sentBlocks.filter(isIdentified).map(textOf)),
    ...sentBlocks.flatMap((block) => changedBlock(block, receivedBlocks)),
    ...changedReasoning(received, sent),
    ...markerViolations(after),
    ...repeatedIds(sentBlocks, 'id'),
  ]
}

/** At most four markers in the whole request, none on reasoning or an empty text. */
export function markerViolations(body: JsonObject): Violations {
  const blocks = [body['system'], body['tools'], ...objectsIn(body['messages']).map(({ content }) => content)].flatMap(
    blocksIn,
  )
  const marked = blocks.flatMap((block) => [block, ...objectsIn(block['content'])]).filter(isMarked)
  const isInvalid = (block: JsonObject): boolean =>
    typeOf(block).endsWith('thinking') || (typeOf(block) === 'text' && String(block['text']).trim() === '')
  return [
    ...(marked.length + (isMarked(body) ? 1 : 0) > 4 ? ['more than 4 markers'] : []),
    ...marked.filter(isInvalid).map((block) => `a ${typeOf(block)} block must not have a marker`),
  ]
}

const isMarked = (value: JsonObject): boolean => value['cache_control'] !== undefined

const isIdentified = (block: JsonObject): boolean => /use$|thinking$|result$/.test(typeOf(block))

function wrongRoles(sent: readonly JsonObject[]): Violations {
  const found: string[] = []
  const turns = sent.filter(({ role }) => role !== 'system')
  if (turns[0]?.['role'] !== 'user') found.push('the first message is not from the user')
  for (const [index, { role, content }] of turns.entries()) {
    if (index > 0 && turns[index - 1]?.['role'] === role)
      found.push(`two messages in a row are from the ${String(role)}`)
    const blocks = blocksIn(content)
    if (blocks.length === 0) found.push('a message is empty')
    if (blocks.some((block) => typeOf(block) === 'text' && String(block['text']).trim() === ''))
      found.push('a text block is empty')
  }
  return found
}

/** A system message follows a user message and precedes a response, or is the last message. */
function misplacedSystem(sent: readonly JsonObject[]): Violations {
  return sent.flatMap(({ role }, index) => {
    if (role !== 'system') return []
    const [before, after] = [sent[index - 1]?.['role'], sent[index + 1]?.['role']]
    return [
      ...(before === 'user' ? [] : [`a system message follows ${String(before)}`]),
      ...(after === 'assistant' || after === undefined ? [] : [`a system message precedes ${String(after)}`]),
    ]
  })
}

/** The results of all calls are the first blocks of the next message. */
function unpairedCalls(sent: readonly JsonObject[]): Violations {
  const found: string[] = []
  let open: string[] = []
  for (const { role, content } of sent.filter((message) => message['role'] !== 'system')) {
    const blocks = blocksIn(content)
    const results = blocks
      .filter((block) => typeOf(block) === 'tool_result')
      .map((block) => String(block['tool_use_id']))
    if (new Set(results).size !== results.length) found.push('a result is sent twice')
    if (open.toSorted().join() !== results.toSorted().join())
      found.push(`the calls [${open.join()}] are followed by the results [${results.join()}]`)
    const firstOther = blocks.findIndex((block) => typeOf(block) !== 'tool_result')
    if (firstOther !== -1 && blocks.slice(firstOther).some((block) => typeOf(block) === 'tool_result'))
      found.push('a result follows other content')
    open =
      role === 'assistant'
        ? blocks.filter((block) => typeOf(block) === 'tool_use').map((block) => String(block['id']))
        : []
  }
  return found
}

/** A call that the vendor runs is sent with its result, and a call made by its code is sent with that code. */
function unpairedServerCalls(received: readonly JsonObject[], sent: readonly JsonObject[]): Violations {
  const isCall = (block: JsonObject): boolean => /^(?:server|mcp)_tool_use$/.test(typeOf(block))
  const idsOf = (blocks: readonly JsonObject[], isWanted: (block: JsonObject) => boolean, field: string): string[] =>
    blocks.filter(isWanted).map((block) => String(block[field]))
  const isResult = (block: JsonObject): boolean => SERVER_RESULTS.test(typeOf(block))
  const responded = new Set(idsOf(received, isResult, 'tool_use_id'))
  const calls = idsOf(sent, isCall, 'id')
  const results = new Set(idsOf(sent, isResult, 'tool_use_id'))
  const callers = sent.flatMap(({ caller }) => (isJsonObject(caller) ? [caller['tool_id']] : []))
  return [
    ...calls.filter((id) => responded.has(id) && !results.has(id)).map((id) => `the server call ${id} lost its result`),
    ...[...results].filter((id) => !calls.includes(id)).map((id) => `the server result ${id} lost its call`),
    ...callers
      .filter((id) => typeof id === 'string' && !calls.includes(id))
      .map((id) => `the caller ${String(id)} is missing`),
  ]
}

/** Only texts and the content of results may differ from what was received. */
function changedBlock(block: JsonObject, received: readonly JsonObject[]): Violations {
  const type = typeOf(block)
  if (type === 'text') return []
  const { content: _, ...fields } = block
  const isReceived = received.some((other) => {
    if (type !== 'tool_result') return textOf(other) === textOf(block)
    const { content: _old, ...otherFields } = other
    return textOf(otherFields) === textOf(fields)
  })
  return isReceived ? [] : [`a ${type} block is changed: ${textOf(fields).slice(0, 200)}`]
}

/** A response keeps its reasoning, in the same place: a response that began with reasoning still does. */
function changedReasoning(received: readonly JsonObject[], sent: readonly JsonObject[]): Violations {
  const found: string[] = []
  const callOf = (message: JsonObject): string | undefined => {
    const call = blocksIn(message['content']).find((block) => typeOf(block) === 'tool_use')
    return call === undefined ? undefined : String(call['id'])
  }
  const reasoningOf = (message: JsonObject): readonly string[] =>
    blocksIn(message['content'])
      .filter((block) => typeOf(block).endsWith('thinking'))
      .map(textOf)
  for (const message of sent.filter(({ role }) => role === 'assistant')) {
    const id = callOf(message)
    const original = id === undefined ? undefined : received.find((other) => callOf(other) === id)
    if (original === undefined) continue
    const before = reasoningOf(original)
    const after = reasoningOf(message)
    if (before.join() !== after.slice(after.length - before.length).join())
      found.push(`the reasoning of ${String(id)} changed`)
    const first = typeOf(blocksIn(original['content'])[0])
    if (first.endsWith('thinking') && !/thinking$|^text$/.test(typeOf(blocksIn(message['content'])[0])))
      found.push(`the answer with ${String(id)} no longer begins with reasoning`)
  }
  return found
}
