import { GatewayError } from '../core/errors.ts'
import { isJsonObject, type Json, type JsonObject } from '../core/json.ts'

/** One request of a batch, as it was given. */
export interface BatchRequest {
  readonly customId: string
  /** The body of a message request; whether it is a right one shows when it is worked on. */
  readonly params: JsonObject
}

export const MOST_REQUESTS = 10_000
const LONGEST_ID = 64

/** The requests of a new batch. Throws `invalid-request` with the path of the first that is wrong. */
export function readBatchRequests(body: JsonObject): readonly BatchRequest[] {
  const { requests } = body
  if (!Array.isArray(requests) || requests.length === 0) {
    throw wrong('requests', 'expected a list of {custom_id, params}, at least one')
  }
  if (requests.length > MOST_REQUESTS) {
    throw wrong('requests', `there are ${requests.length}; expected at most ${MOST_REQUESTS}. Make several batches`)
  }
  const seen = new Map<string, number>()
  return requests.map((request: Json, index) => readOne(request, index, seen))
}

function readOne(request: Json, index: number, seen: Map<string, number>): BatchRequest {
  const path = `requests.${index}`
  if (!isJsonObject(request)) throw wrong(path, 'expected an object of custom_id and params')
  const { custom_id: customId, params } = request
  if (typeof customId !== 'string' || customId.length === 0 || customId.length > LONGEST_ID) {
    throw wrong(`${path}.custom_id`, `expected a text of 1 to ${LONGEST_ID} characters`)
  }
  const first = seen.get(customId)
  if (first !== undefined) {
    throw wrong(`${path}.custom_id`, `it is that of requests.${first}, too; each must be unique in its batch`)
  }
  seen.set(customId, index)
  if (!isJsonObject(params)) throw wrong(`${path}.params`, 'expected the body of a message request')
  return { customId, params }
}

function wrong(param: string, what: string): GatewayError {
  return new GatewayError('invalid-request', `${param}: ${what}.`, { param })
}
