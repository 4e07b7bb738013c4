import { GatewayError } from '../core/errors.ts'
import { asArray, isJsonObject, type Json, type JsonObject } from '../core/json.ts'
import { type Store, quotaOf } from '../core/store.ts'
import type { StoredTurn, TurnFormat } from '../formats/format.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import type { Resolved } from './exchange.ts'
import type { RecalledBody, KeptRequests } from './services.ts'

const DAY_MS = 24 * 60 * 60 * 1000
/** How long a turn is stored after its answer. */
const KEPT_MS = DAY_MS
/** How long a key can refer to responses that an upstream stores. Vendors delete them after 30 days. */
const HELD_MS = 30 * DAY_MS
/** Maximum number of ids that are stored per answer. */
const MAX_HELD_IDS = 256
/** Maximum size of a stored conversation, in UTF-16 units of its JSON. */
const LONGEST = 4 * 1024 * 1024
/** Maximum number of items that a request may refer to. Each one is a read of the store. */
const MAX_QUOTED = 1000
/** Maximum number of concurrent reads of the store. */
const AT_ONCE = 16
/** Maximum size of all turns that one request reads, in UTF-16 units of their JSON. */
const MAX_RECALLED = 32 * 1024 * 1024

export type KeptTurnStore = Pick<Store, 'get' | 'set' | 'delete'>

/** Stored turns of a format whose requests refer to earlier responses. */
export interface KeptTurns extends Pick<KeptRequests, 'find' | 'findInput' | 'findHolder' | 'forget' | 'hold'> {
  recall(turns: TurnFormat, key: VirtualKey, body: JsonObject): Promise<RecalledBody>
  keep(key: VirtualKey, turn: StoredTurn): Promise<void>
}

/**
 * Each turn contains its whole conversation, so that it can be continued after earlier turns have expired. The answer
 * is stored separately, because it is read separately and far more often.
 */
export function createKeptTurns(store: KeptTurnStore): KeptTurns {
  return {
    find: async (key, id) => answerOf(await read(store, { key, id, half: 'answer' })),
    findInput: async (key, id) => (await findTurn(store, key, id))?.input,
    findHolder: async (key, id) => (isKeptId(id) ? store.get(heldName(key, id)) : undefined),
    hold: async (key, ids, provider) => {
      const options = { ttlMs: HELD_MS, quota: quotaOf('held-response', key.id) }
      const held = ids.filter(isKeptId).slice(0, MAX_HELD_IDS)
      await Promise.all(held.map((id) => store.set(heldName(key, id), provider, options)))
    },
    recall: (turns, key, body) => recall(store, { turns, key }, body),
    keep: async (key, turn) => {
      if (isKeptId(turn.id)) await write(store, key, turn)
    },
    forget: async (key, id) => {
      if (!isKeptId(id)) return false
      const names = [...HALVES.map((half) => nameOf({ key, id, half })), heldName(key, id)]
      const wereThere = await Promise.all(names.map((name) => store.delete(name)))
      return wereThere.includes(true)
    },
  }
}

async function recall(
  store: KeptTurnStore,
  { turns, key }: { readonly turns: TurnFormat; readonly key: VirtualKey },
  body: JsonObject,
): Promise<RecalledBody> {
  const { continued, quoted, foreign } = turns.refersTo(body)
  const holders = await findHolders(store, key, continued === undefined ? foreign : [continued, ...foreign])
  const isKeptHere = continued !== undefined && !holders.has(continued)
  const found = {
    continued: isKeptHere ? await findTurn(store, key, continued) : undefined,
    quoted: await findQuoted(store, key, quoted),
    storedUpstream: new Set(holders.keys()),
  }
  const [heldBy, other] = new Set(holders.values())
  if (other !== undefined) throw heldByTwo(String(heldBy), other)
  return {
    body: turns.recall(body, found),
    ...(heldBy !== undefined && { narrow: (resolved: Resolved) => routesOfHolder(resolved, heldBy) }),
  }
}

/** Returns the providers that store these responses and items for the key. */
async function findHolders(
  store: KeptTurnStore,
  key: VirtualKey,
  ids: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  if (ids.length > MAX_QUOTED) throw tooMuch(`more than ${MAX_QUOTED} items`)
  const holders = new Map<string, string>()
  for (let from = 0; from < ids.length; from += AT_ONCE) {
    const some = ids.slice(from, from + AT_ONCE).filter(isKeptId)
    const found = await Promise.all(some.map((id) => store.get(heldName(key, id))))
    for (const [index, id] of some.entries()) {
      const provider = found[index]
      if (provider !== undefined) holders.set(id, provider)
    }
  }
  return holders
}

type Half = 'answer' | 'input'

const HALVES: readonly Half[] = ['answer', 'input']

interface Place {
  readonly key: VirtualKey
  readonly id: string
  readonly half: Half
}

async function read(store: KeptTurnStore, place: Place): Promise<string | undefined> {
  return isKeptId(place.id) ? store.get(nameOf(place)) : undefined
}

async function findTurn(store: KeptTurnStore, key: VirtualKey, id: string): Promise<StoredTurn | undefined> {
  const [answered, input] = await Promise.all(HALVES.map((half) => read(store, { key, id, half })))
  const answer = answerOf(answered)
  if (answer === undefined || input === undefined) return undefined
  return { id, answer, input: asArray(JSON.parse(input) as Json) }
}

async function findQuoted(
  store: KeptTurnStore,
  key: VirtualKey,
  ids: readonly string[],
): Promise<ReadonlyMap<string, JsonObject>> {
  if (ids.length > MAX_QUOTED) throw tooMuch(`items of more than ${MAX_QUOTED} responses`)
  const found = new Map<string, JsonObject>()
  let size = 0
  for (let from = 0; from < ids.length; from += AT_ONCE) {
    const some = ids.slice(from, from + AT_ONCE)
    const texts = await Promise.all(some.map((id) => read(store, { key, id, half: 'answer' })))
    size += texts.reduce((sum, text) => sum + (text?.length ?? 0), 0)
    if (size > MAX_RECALLED) throw tooMuch(`responses of more than ${MAX_RECALLED} characters`)
    for (const [index, id] of some.entries()) {
      const answer = answerOf(texts[index])
      if (answer !== undefined) found.set(id, answer)
    }
  }
  return found
}

/** If a turn cannot be stored, requests that refer to it get 404. */
async function write(store: KeptTurnStore, key: VirtualKey, { id, input, answer }: StoredTurn): Promise<void> {
  const texts = { answer: JSON.stringify(answer), input: JSON.stringify(input) }
  if (texts.answer.length + texts.input.length > LONGEST) return
  const options = { ttlMs: KEPT_MS, quota: quotaOf('turn', key.id) }
  await Promise.allSettled(HALVES.map((half) => store.set(nameOf({ key, id, half }), texts[half], options)))
}

function isKeptId(id: string): boolean {
  return /^[\w-]{1,200}$/.test(id)
}

function nameOf({ key, id, half }: Place): string {
  return `turn:${key.id}:${id}:${half}`
}

/** Each item has its own name, because a request may refer to any of them. */
function heldName(key: VirtualKey, id: string): string {
  return `held:${key.id}:${id}`
}

function answerOf(text: string | undefined): JsonObject | undefined {
  const value: unknown = text === undefined ? undefined : JSON.parse(text)
  return isJsonObject(value) ? value : undefined
}

/**
 * Returns the routes of the provider that stores the referenced responses. Throws 400 for a model of another provider.
 */
function routesOfHolder(resolved: Resolved, holder: string): Resolved {
  const [first, ...others] = resolved.routes.filter(({ provider }) => provider.name === holder)
  if (first !== undefined) return { name: resolved.name, routes: [first, ...others] }
  throw new GatewayError(
    'invalid-request',
    `The request continues a response that the provider ${holder} holds, but its model belongs to another provider. Choose a model of ${holder}, or send the whole conversation as input.`,
    { param: 'previous_response_id', code: 'previous_response_not_found' },
  )
}

function heldByTwo(one: string, other: string): GatewayError {
  return new GatewayError(
    'invalid-request',
    `The request refers to responses of two providers, ${one} and ${other}; expected one. Send the items themselves.`,
    { param: 'input' },
  )
}

function tooMuch(what: string): GatewayError {
  return new GatewayError(
    'invalid-request',
    `input refers to ${what}. Send the items themselves, or continue by previous_response_id.`,
    { param: 'input' },
  )
}
