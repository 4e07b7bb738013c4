import { GatewayError } from '../core/errors.ts'
import { asArray, isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import type { Store } from '../core/ports.ts'
import { quotaOf } from '../core/quotas.ts'
import type { KeptTurn, TurnFormat, WriteContext } from '../formats/format.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import type { MaybePromise } from '../core/maybe-promise.ts'
import type { Answered, Parsed } from './exchange.ts'
import type { Services, Turns } from './services.ts'

/** How long a turn is kept, from the moment it was answered. */
const KEPT_MS = 24 * 60 * 60 * 1000
/** A longer conversation is not kept, in UTF-16 units of its JSON. */
const LONGEST = 4 * 1024 * 1024
/** Each one is a read of the store; so many are read at once. */
const MOST_QUOTED = 1000
const AT_ONCE = 16
/** All that one request recalls, in UTF-16 units of its JSON. */
const MOST_RECALLED = 32 * 1024 * 1024

type Kept = Pick<Store, 'get' | 'set' | 'delete'>

/**
 * Each turn holds its whole conversation, so that it can be continued when the turns before it are gone. The answer
 * stands apart: it is read alone, and far more often.
 */
export function createTurns(store: Kept): Turns {
  return {
    find: async (key, id) => answerOf(await read(store, { key, id, half: 'answer' })),
    recall: ({ turns }, key, body) => (turns === undefined ? body : recall(store, { turns, key }, body)),
    keep: (answered, serialized) => {
      const { turns } = answered.format
      if (turns === undefined || serialized === undefined) return undefined
      const turn = turns.keep(writeContext(answered), serialized)
      return turn !== undefined && isKeptId(turn.id) ? write(store, answered.key, turn) : undefined
    },
    forget: async (key, id) => {
      if (!isKeptId(id)) return false
      const [wasThere] = await Promise.all(HALVES.map((half) => store.delete(nameOf({ key, id, half }))))
      return wasThere === true
    },
  }
}

async function recall(
  store: Kept,
  { turns, key }: { readonly turns: TurnFormat; readonly key: VirtualKey },
  body: JsonObject,
): Promise<JsonObject> {
  const { continued, quoted } = turns.refersTo(body)
  const turn = continued === undefined ? undefined : await findTurn(store, key, continued)
  return turns.recall(body, { continued: turn, quoted: await findQuoted(store, key, quoted) })
}

type Half = 'answer' | 'input'

const HALVES: readonly Half[] = ['answer', 'input']

interface Place {
  readonly key: VirtualKey
  readonly id: string
  readonly half: Half
}

async function read(store: Kept, place: Place): Promise<string | undefined> {
  return isKeptId(place.id) ? store.get(nameOf(place)) : undefined
}

async function findTurn(store: Kept, key: VirtualKey, id: string): Promise<KeptTurn | undefined> {
  const [told, input] = await Promise.all(HALVES.map((half) => read(store, { key, id, half })))
  const answer = answerOf(told)
  if (answer === undefined || input === undefined) return undefined
  return { id, answer, input: asArray(JSON.parse(input) as Json) }
}

async function findQuoted(
  store: Kept,
  key: VirtualKey,
  ids: readonly string[],
): Promise<ReadonlyMap<string, JsonObject>> {
  if (ids.length > MOST_QUOTED) throw tooMuch(`items of more than ${MOST_QUOTED} responses`)
  const found = new Map<string, JsonObject>()
  let size = 0
  for (let from = 0; from < ids.length; from += AT_ONCE) {
    const some = ids.slice(from, from + AT_ONCE)
    const texts = await Promise.all(some.map((id) => read(store, { key, id, half: 'answer' })))
    size += texts.reduce((sum, text) => sum + (text?.length ?? 0), 0)
    if (size > MOST_RECALLED) throw tooMuch(`responses of more than ${MOST_RECALLED} characters`)
    for (const [index, id] of some.entries()) {
      const answer = answerOf(texts[index])
      if (answer !== undefined) found.set(id, answer)
    }
  }
  return found
}

/** Whoever refers to a turn that could not be kept is told that it is not there. */
async function write(store: Kept, key: VirtualKey, { id, input, answer }: KeptTurn): Promise<void> {
  const texts = { answer: JSON.stringify(answer), input: JSON.stringify(input) }
  if (texts.answer.length + texts.input.length > LONGEST) return
  const options = { ttlMs: KEPT_MS, quota: quotaOf('turn', key.id) }
  await Promise.allSettled(HALVES.map((half) => store.set(nameOf({ key, id, half }), texts[half], options)))
}

/** Keeps an answered and settled request. The answer leaves also when that fails. */
export function keepTurn(
  answered: Answered,
  serialized: string | undefined,
  { turns, observers }: Pick<Services, 'turns' | 'observers'>,
): MaybePromise<void> {
  const failed = (cause: unknown): void =>
    observers.failed('an answered request could not be kept for later ones', cause, { request_id: answered.id })
  try {
    const kept = turns.keep(answered, serialized)
    return kept instanceof Promise ? kept.catch(failed) : kept
  } catch (cause) {
    failed(cause)
  }
}

/** What the writers of answers must know of a request. */
export function writeContext({ prompt, startedAt, id, asked }: Parsed): WriteContext {
  return { prompt, created: Math.floor(startedAt / 1000), requestId: id, asked }
}

function isKeptId(id: string): boolean {
  return /^[\w-]{1,200}$/.test(id)
}

function nameOf({ key, id, half }: Place): string {
  return `turn:${key.id}:${id}:${half}`
}

function answerOf(text: string | undefined): JsonObject | undefined {
  const value: unknown = text === undefined ? undefined : JSON.parse(text)
  return isJsonObject(value) ? value : undefined
}

function tooMuch(what: string): GatewayError {
  return new GatewayError(
    'invalid-request',
    `input refers to ${what}. Send the items themselves, or continue by previous_response_id.`,
    { param: 'input' },
  )
}
