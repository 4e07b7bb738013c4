import { GatewayError } from '../core/errors.ts'
import { isJsonObject, type JsonObject } from '../core/json.ts'
import { scanRequests, type ByteSpan } from './scan-requests.ts'

/** One request of a batch. */
export interface BatchRequest {
  readonly customId: string
  /** The JSON text of `{custom_id, params}` as it came. Whether `params` are valid shows when the item is worked on. */
  readonly text: string
}

/** The JSON object that some bytes hold, and its text. Throws `invalid-request`. */
export type ParseObject = (bytes: Uint8Array) => Promise<{ readonly body: JsonObject; readonly text: string }>

export interface ReadOptions {
  readonly parse: ParseObject
  /** Serves the event loop. */
  readonly pause: () => Promise<void>
}

export const MOST_REQUESTS = 10_000
const LONGEST_ID = 64
/** The number of bytes that are parsed without a pause: some milliseconds of the densest JSON. */
const SLICE = 65_536

/**
 * Reads the requests of a new batch, one after the other and with pauses. Throws `invalid-request` with the path of the
 * first that is wrong.
 */
export async function readBatchRequests(bytes: Uint8Array, options: ReadOptions): Promise<readonly BatchRequest[]> {
  const { spans, rest } = await find(bytes, options.pause)
  const { requests: emptied } = (await options.parse(rest)).body
  if (spans.length === 0 || !Array.isArray(emptied) || emptied.length > 0) {
    throw wrong('requests', 'expected one list of {custom_id, params}, at least one')
  }
  const requests: BatchRequest[] = []
  const seen = new Map<string, number>()
  let parsed = 0
  for (const [index, span] of spans.entries()) {
    requests.push(await readOne(bytes, span, { index, seen, parse: options.parse }))
    parsed += span.end - span.start
    if (parsed < SLICE) continue
    parsed = 0
    await options.pause()
  }
  return requests
}

async function find(
  bytes: Uint8Array,
  pause: ReadOptions['pause'],
): Promise<{ readonly spans: readonly ByteSpan[]; readonly rest: Uint8Array }> {
  const spans: ByteSpan[] = []
  const scan = scanRequests(bytes)
  for (;;) {
    const { value, done } = scan.next()
    if (done === true) return { spans, rest: value }
    if (value === undefined) await pause()
    else if (spans.length >= MOST_REQUESTS) throw tooMany()
    else spans.push(value)
  }
}

interface Reading {
  readonly index: number
  readonly seen: Map<string, number>
  readonly parse: ParseObject
}

const OPEN_BRACE = 123

async function readOne(
  bytes: Uint8Array,
  { start, end }: ByteSpan,
  { index, seen, parse }: Reading,
): Promise<BatchRequest> {
  const path = `requests.${index}`
  if (bytes[start] !== OPEN_BRACE || start === end) throw wrong(path, 'expected an object of custom_id and params')
  const { body, text } = await parseAt(path, parse(bytes.subarray(start, end)))
  const { custom_id: customId, params } = body
  if (typeof customId !== 'string' || customId.length === 0 || customId.length > LONGEST_ID) {
    throw wrong(`${path}.custom_id`, `expected a text of 1 to ${LONGEST_ID} characters`)
  }
  const first = seen.get(customId)
  if (first !== undefined) {
    throw wrong(`${path}.custom_id`, `requests.${first} has the same; each must be unique in its batch`)
  }
  seen.set(customId, index)
  if (!isJsonObject(params)) throw wrong(`${path}.params`, 'expected the body of a message request')
  return { customId, text }
}

async function parseAt<value>(path: string, parsing: Promise<value>): Promise<value> {
  try {
    return await parsing
  } catch (error) {
    if (!GatewayError.is(error)) throw error
    throw new GatewayError(error.kind, `${path}: ${error.message}`, { ...error.details, param: path })
  }
}

function tooMany(): GatewayError {
  return wrong('requests', `there are more than ${MOST_REQUESTS}. Make several batches`)
}

function wrong(param: string, what: string): GatewayError {
  return new GatewayError('invalid-request', `${param}: ${what}.`, { param })
}
