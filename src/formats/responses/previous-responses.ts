import type { Completion } from '../../core/answer.ts'
import { GatewayError } from '../../core/errors.ts'
import { asArray, asObject, asString, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import type { Prompt } from '../../core/prompt.ts'
import type { KeptTurn, RecalledTurns, References, TurnFormat, WriteContext } from '../format.ts'
import { isAbsent } from '../fields.ts'
import { readCompletion } from './answer.ts'
import { inputItems, itemsOf } from './items.ts'
import { responseId, responseOfItem, stemOf } from './response.ts'

/** Resolves `previous_response_id` and item references, which refer to earlier responses of the same key. */
export const responseTurns: TurnFormat = {
  refersTo,
  recall,
  keep,
  idsOf,
  readCompletion,
  answerId,
  isUnfinished,
  refersToUpstream,
}

function refersTo(body: JsonObject): References {
  const quoted = new Set<string>()
  const foreign = new Set<string>()
  for (const item of asArray(body['input'])) {
    const id = referenceIn(item)
    if (id === undefined) continue
    const response = responseOfItem(id)
    if (response === undefined) foreign.add(id)
    else quoted.add(response)
  }
  return { continued: asString(body['previous_response_id']), quoted: [...quoted], foreign: [...foreign] }
}

/** Fields that make the vendor read data that it stores. */
const HELD_FIELDS = ['previous_response_id', 'conversation', 'prompt']

function refersToUpstream({ native, messages }: Prompt): boolean {
  if (HELD_FIELDS.some((field) => !isAbsent(native.value[field]))) return true
  return messages.some((message) => itemsOf(message).some((item) => referenceIn(item) !== undefined))
}

function isUnfinished({ native }: Completion): boolean {
  const status = native?.value['status']
  return status === 'queued' || status === 'in_progress'
}

function answerId(requestId: string): string {
  return responseId(stemOf(requestId))
}

function idsOf(answer: JsonObject): readonly string[] {
  return [answer, ...asArray(answer['output'])].flatMap((holder) => asString(asObject(holder)?.['id']) ?? [])
}

/** Returns the id that an item refers to. An item with only an id is a reference. */
function referenceIn(item: Json): string | undefined {
  if (!isJsonObject(item)) return undefined
  const { type, role, id } = item
  const isReference = type === 'item_reference' || (isAbsent(type) && role === undefined)
  return isReference ? asString(id) : undefined
}

/** Returns the same body when it contains no reference. */
function recall(body: JsonObject, found: RecalledTurns): JsonObject {
  const { previous_response_id: previous, ...others } = body
  const isContinued = typeof previous === 'string' && !found.held.has(previous)
  const refers = asArray(body['input']).some((item) => {
    const id = referenceIn(item)
    return id !== undefined && !found.held.has(id)
  })
  if (!isContinued && !refers) return body
  const earlier = isContinued ? conversationOf(previous, found) : []
  const given = body['input'] === undefined ? [] : inputItems(body['input'])
  const input = [...earlier, ...given.map((item, index) => resolved(item, `input[${index}]`, found))]
  return isContinued ? { ...others, input } : { ...body, input }
}

function conversationOf(id: string, { continued }: RecalledTurns): readonly Json[] {
  if (continued !== undefined) return [...continued.input, ...asArray(continued.answer['output'])]
  throw new GatewayError(
    'invalid-request',
    `Previous response with id ${shown(id)} not found: responses are kept for a day, for the key that asked, and not with store: false. Send the whole conversation as input.`,
    { param: 'previous_response_id', code: 'previous_response_not_found' },
  )
}

function resolved(item: Json, param: string, { quoted, held }: RecalledTurns): Json {
  const id = referenceIn(item)
  if (id === undefined || held.has(id)) return item
  const answer = quoted.get(responseOfItem(id) ?? '')
  const found = asArray(answer?.['output']).find((one) => asObject(one)?.['id'] === id)
  if (found !== undefined) return found
  throw new GatewayError(
    'invalid-request',
    `Item with id ${shown(id)} not found: items are kept for a day, for the key that asked, and not with store: false. Send the item itself.`,
    { param },
  )
}

const MAX_ID_LENGTH = 100

function shown(id: string): string {
  return JSON.stringify(id.slice(0, MAX_ID_LENGTH))
}

function keep({ prompt, asked }: WriteContext, serialized: string): KeptTurn | undefined {
  if ((asked ?? prompt.native.value)['store'] === false) return undefined
  const value: unknown = JSON.parse(serialized)
  const answer = isJsonObject(value) ? (asObject(value['response']) ?? value) : {}
  const id = asString(answer['id'])
  return id === undefined ? undefined : { id, input: inputItems(prompt.native.value['input']), answer }
}
