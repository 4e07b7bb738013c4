import type { Completion } from '../../core/completion.ts'
import { GatewayError } from '../../core/errors.ts'
import { type Json, type JsonObject, asArray, asObject, asString, isJsonObject } from '../../core/json.ts'
import { memberText } from '../../core/splice-json.ts'
import type { Prompt } from '../../core/prompt.ts'
import type { StoredTurn, RecalledTurns, References, TurnFormat, WriteContext } from '../format.ts'
import { readCompletion } from './response-reader.ts'
import { inputItems, itemsOf, responseId, responseIdOfItem, idStem } from './items.ts'
import { inputText } from './item-texts.ts'
import { STORED_DATA_FIELDS } from './request-reader.ts'
import { isAbsent } from '../read-fields.ts'

export const turns: TurnFormat = {
  referencesIn,
  resolveReferences,
  turnToStore,
  idsOf,
  readCompletion,
  responseId: (requestId) => responseId(idStem(requestId)),
  isUnfinished,
  refersToUpstream,
}

function referencesIn(body: JsonObject): References {
  const referenced = new Set<string>()
  const foreign = new Set<string>()
  for (const item of asArray(body['input'])) {
    const id = referencedId(item)
    if (id === undefined) continue
    const responseId = responseIdOfItem(id)
    if (responseId === undefined) foreign.add(id)
    else referenced.add(responseId)
  }
  return {
    previousTurnId: asString(body['previous_response_id']),
    referencedTurnIds: [...referenced],
    foreignItemIds: [...foreign],
  }
}

function refersToUpstream({ native, messages }: Prompt): boolean {
  if (STORED_DATA_FIELDS.some((field) => !isAbsent(native.value[field]))) return true
  return messages.some((message) => itemsOf(message).some((item) => referencedId(item) !== undefined))
}

function isUnfinished({ native }: Completion): boolean {
  const status = native?.value['status']
  return status === 'queued' || status === 'in_progress'
}

function idsOf(response: JsonObject): readonly string[] {
  return [response, ...asArray(response['output'])].flatMap((object) => asString(asObject(object)?.['id']) ?? [])
}

/** An item with neither a type nor a role is a reference. */
function referencedId(item: Json): string | undefined {
  if (!isJsonObject(item)) return undefined
  const { type, role, id } = item
  const isReference = type === 'item_reference' || (isAbsent(type) && role === undefined)
  return isReference ? asString(id) : undefined
}

/** Returns the same object if the body refers to nothing or only to data that an upstream stores. */
function resolveReferences(body: JsonObject, turns: RecalledTurns): JsonObject {
  const { previous_response_id: previousId, ...others } = body
  const hasPrevious = typeof previousId === 'string' && !turns.upstreamIds.has(previousId)
  const hasReferences = asArray(body['input']).some((item) => {
    const id = referencedId(item)
    return id !== undefined && !turns.upstreamIds.has(id)
  })
  if (!hasPrevious && !hasReferences) return body
  const earlierItems = hasPrevious ? previousConversation(previousId, turns) : []
  const items = inputItems(body['input']).map((item, index) => resolveReference(item, `input[${index}]`, turns))
  const input = [...earlierItems, ...items]
  return hasPrevious ? { ...others, input } : { ...body, input }
}

function previousConversation(id: string, { previousTurn }: RecalledTurns): readonly Json[] {
  if (previousTurn !== undefined) return [...previousTurn.input, ...asArray(previousTurn.response['output'])]
  throw new GatewayError(
    'invalid-request',
    `Previous response with id ${quoteId(id)} not found: responses are stored for one day, for the key that created them, unless store is false or the conversation is too long. Send the whole conversation as input.`,
    { param: 'previous_response_id', code: 'previous_response_not_found' },
  )
}

function resolveReference(item: Json, param: string, { referencedResponses, upstreamIds }: RecalledTurns): Json {
  const id = referencedId(item)
  if (id === undefined || upstreamIds.has(id)) return item
  const response = referencedResponses.get(responseIdOfItem(id) ?? '')
  const responseItem = asArray(response?.['output']).find((output) => asObject(output)?.['id'] === id)
  if (responseItem !== undefined) return responseItem
  throw new GatewayError(
    'invalid-request',
    `Item with id ${quoteId(id)} not found: items are stored for one day, for the key that created them, unless store is false or the conversation is too long. Send the item itself.`,
    { param },
  )
}

const MAX_ID_LENGTH = 100

function quoteId(id: string): string {
  return JSON.stringify(id.slice(0, MAX_ID_LENGTH))
}

function turnToStore({ prompt, requestBody }: WriteContext, serialized: string): StoredTurn | undefined {
  if ((requestBody ?? prompt.native.value)['store'] === false) return undefined
  const value: unknown = JSON.parse(serialized)
  const nested = isJsonObject(value) ? asObject(value['response']) : undefined
  const response = nested ?? asObject(value) ?? {}
  const id = asString(response['id'])
  if (id === undefined) return undefined
  const { value: body, received } = prompt.native
  const input = inputItems(body['input'])
  const texts = {
    response: (nested && memberText(serialized, 'response')) ?? serialized,
    input: (received && inputText(received, body['input'])) ?? JSON.stringify(input),
  }
  return { id, input, response, texts }
}
