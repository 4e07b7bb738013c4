import { deletePrefix } from '../../core/delete-prefix.ts'
import { GatewayError } from '../../core/errors.ts'
import { asArray, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import { quotaOf, type Store } from '../../core/store.ts'
import type { StoredTurn, TurnFormat } from '../../formats/format.ts'
import { ItemTexts, writeResolved } from '../../formats/responses/item-texts.ts'
import { memberText } from '../../core/splice-json.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'
import { removeForeignItemIds, typedItemIds } from '../../formats/responses/item-ids.ts'
import { toResolvedModel } from '../../kernel/resolve-model.ts'
import { type Responded, type ResolvedModel } from '../../kernel/exchange.ts'
import { storingProvider } from './storing-provider.ts'
import { MAX_ITEMS } from '../../formats/responses/request-reader.ts'
import type { CompletedBody, ReadBody } from '../../kernel/hooks.ts'
import { mapInSlices } from '../../core/map-in-slices.ts'

const DAY_MS = 24 * 60 * 60 * 1000
const TURN_TTL_MS = DAY_MS
/** Vendors store responses for 30 days. */
const UPSTREAM_ID_TTL_MS = 30 * DAY_MS
/** If the process dies before it settles a response, the response cannot be deleted for this long. */
const UNSETTLED_TTL_MS = 60 * 60 * 1000
const MAX_STORED_IDS = 256
/** In UTF-16 code units of the JSON. */
const MAX_CONVERSATION_LENGTH = 4 * 1024 * 1024
/** Each id requires a store read. */
const MAX_REFERENCES = 1000
const MAX_CONCURRENT_READS = 16
/** Ids are short, and an agent's conversation has hundreds. */
const MAX_CONCURRENT_ID_READS = 64
/** Total length of the referenced answers, in UTF-16 code units of their JSON. */
const MAX_RECALLED_LENGTH = 32 * 1024 * 1024

type TurnStore = Pick<Store, 'get' | 'set' | 'delete' | 'list'>

export interface Turns {
  recall(format: TurnFormat, scope: string, parsed: ReadBody): Promise<CompletedBody>
  store(responded: Responded, format: TurnFormat, turn: StoredTurn): Promise<void>
  /** Returns the response as JSON text, because its numbers may not be exact after parsing. */
  find(scope: string, id: string): Promise<string | undefined>
  /** Returns the conversation without the response, as the JSON text of an array. */
  findInput(scope: string, id: string): Promise<string | undefined>
  findProvider(scope: string, id: string): Promise<string | undefined>
  storeProvider(scope: string, ids: readonly string[], provider: string): Promise<void>
  /** A background response is unsettled while its request waits for settlement. */
  setUnsettled(scope: string, id: string, isUnsettled: boolean): Promise<void>
  isUnsettled(scope: string, id: string): Promise<boolean>
  /** Resolves with true if a stored turn or provider name was deleted. */
  delete(scope: string, id: string): Promise<boolean>
  /** Deletes all turns of the scope, and the names of the providers that store further ones. */
  purge(scope: string): Promise<void>
}

/**
 * Each turn contains its full conversation, because clients may continue from it after earlier turns have expired. The
 * answer is stored separately, because some reads need only the response.
 */
export function createTurns(store: TurnStore): Turns {
  async function storeProvider(scope: string, ids: readonly string[], provider: string): Promise<void> {
    const options = { ttlMs: UPSTREAM_ID_TTL_MS, quota: quotaOf('held-response', scope) }
    const valid = ids.filter(isValidId).slice(0, MAX_STORED_IDS)
    await Promise.all(valid.map((id) => store.set(providerStoreKey(scope, id), provider, options)))
  }

  return {
    find: async (scope, id) => {
      const text = await readPart(store, { scope, id, part: 'response' })
      return parseResponse(text) === undefined ? undefined : text
    },
    findInput: async (scope, id) => (await findTurn(store, scope, id))?.texts.input,
    findProvider: async (scope, id) => (isValidId(id) ? store.get(providerStoreKey(scope, id)) : undefined),
    storeProvider,
    recall: (format, scope, parsed) => recall(store, format, scope, parsed),
    store: async (responded, format, turn) => {
      const { scope } = responded.caller
      const provider = storingProvider(responded)
      if (provider !== undefined) await storeProvider(scope, format.idsOf(turn.response), provider)
      else if (isValidId(turn.id)) await writeTurn(store, scope, turn)
    },
    setUnsettled: async (scope, id, isUnsettled) => {
      const storeKey = unsettledStoreKey(scope, id)
      const options = { ttlMs: UNSETTLED_TTL_MS, quota: quotaOf('held-response', scope) }
      await (isUnsettled && isValidId(id) ? store.set(storeKey, '1', options) : store.delete(storeKey))
    },
    isUnsettled: async (scope, id) => isValidId(id) && (await store.get(unsettledStoreKey(scope, id))) !== undefined,
    delete: async (scope, id) => {
      if (!isValidId(id)) return false
      const storeKeys = [...PARTS.map((part) => partStoreKey({ scope, id, part })), providerStoreKey(scope, id)]
      const deleted = await Promise.all(storeKeys.map((storeKey) => store.delete(storeKey)))
      return deleted.includes(true)
    },
    purge: async (scope) => {
      for (const kind of ['turn', 'held', 'unsettled'] as const)
        await deletePrefix(store, prefixOf(kind, scope), yieldToEventLoop)
    },
  }
}

async function recall(
  store: TurnStore,
  format: TurnFormat,
  scope: string,
  { body, received }: ReadBody,
): Promise<CompletedBody> {
  const { previousTurnId, referencedTurnIds, foreignItemIds } = format.referencesIn(body)
  const ids = previousTurnId === undefined ? foreignItemIds : [previousTurnId, ...foreignItemIds]
  const providers = await findProviders(store, scope, ids)
  const isStoredHere = previousTurnId !== undefined && !providers.has(previousTurnId)
  const referenced = await findReferenced(store, scope, referencedTurnIds)
  const turns = {
    previousTurn: isStoredHere ? await findTurn(store, scope, previousTurnId) : undefined,
    referencedResponses: new Map([...referenced].map(([id, { response }]) => [id, response])),
    upstreamIds: new Set(providers.keys()),
  }
  const [provider, secondProvider] = new Set(providers.values())
  if (secondProvider !== undefined) throw severalProviders(String(provider), secondProvider)
  const resolved = await checkItemIds(store, scope, format.resolveReferences(body, turns))
  const isUnchanged = resolved === body || received === undefined
  const responses = [
    ...referenced.values(),
    ...(turns.previousTurn === undefined ? [] : [toResponse(turns.previousTurn)]),
  ]
  const bytes = isUnchanged ? received : writeResolved(resolved, body, received, await itemTexts(turns, responses))
  return {
    body: resolved,
    received: bytes,
    ...(provider !== undefined && {
      restrictRoutes: (resolved: ResolvedModel) => restrictToProvider(resolved, provider),
    }),
  }
}

/** Does not choose the provider: an item with an id also contains what the id names, so any provider can serve it. */
async function checkItemIds(store: TurnStore, scope: string, body: JsonObject): Promise<JsonObject> {
  // Longer inputs are rejected when they are read.
  if (asArray(body['input']).length > MAX_ITEMS) return body
  const ids = typedItemIds(body)
  const providers = ids.length === 0 ? new Map<string, string>() : await readProviders(store, scope, ids)
  return removeForeignItemIds(body, new Set(providers.keys()))
}

async function findProviders(
  store: TurnStore,
  scope: string,
  ids: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  if (ids.length > MAX_REFERENCES) throw tooManyReferences(`more than ${MAX_REFERENCES} items`)
  return readProviders(store, scope, ids)
}

async function readProviders(
  store: TurnStore,
  scope: string,
  ids: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const providers = new Map<string, string>()
  await mapInSlices(ids.filter(isValidId), MAX_CONCURRENT_ID_READS, async (id) => {
    const provider = await store.get(providerStoreKey(scope, id))
    if (provider !== undefined) providers.set(id, provider)
  })
  return providers
}

interface TurnLocation {
  readonly scope: string
  readonly id: string
  readonly part: 'response' | 'input'
}

const PARTS = ['response', 'input'] as const

async function readPart(store: TurnStore, location: TurnLocation): Promise<string | undefined> {
  return isValidId(location.id) ? store.get(partStoreKey(location)) : undefined
}

async function findTurn(store: TurnStore, scope: string, id: string): Promise<StoredTurn | undefined> {
  const [responseText, inputText] = await Promise.all(PARTS.map((part) => readPart(store, { scope, id, part })))
  const response = parseResponse(responseText)
  if (response === undefined || responseText === undefined || inputText === undefined) return undefined
  const input = asArray(JSON.parse(inputText) as Json)
  return { id, response, input, texts: { response: responseText, input: inputText } }
}

async function findReferenced(
  store: TurnStore,
  scope: string,
  ids: readonly string[],
): Promise<ReadonlyMap<string, StoredResponse>> {
  if (ids.length > MAX_REFERENCES) throw tooManyReferences(`items of more than ${MAX_REFERENCES} responses`)
  const responses = new Map<string, StoredResponse>()
  let length = 0
  await mapInSlices(ids, MAX_CONCURRENT_READS, async (id) => {
    const text = await readPart(store, { scope, id, part: 'response' })
    length += text?.length ?? 0
    if (length > MAX_RECALLED_LENGTH) {
      throw tooManyReferences(`responses with more than ${MAX_RECALLED_LENGTH} characters in total`)
    }
    const response = parseResponse(text)
    if (response !== undefined && text !== undefined) responses.set(id, { response, text })
  })
  return responses
}

interface StoredResponse {
  readonly response: JsonObject
  readonly text: string
}

async function itemTexts(
  { previousTurn }: { readonly previousTurn: StoredTurn | undefined },
  responses: readonly StoredResponse[],
): Promise<ItemTexts> {
  const texts = new ItemTexts()
  for (const { response, text } of responses) {
    texts.add(asArray(response['output']), memberText(text, 'output'))
    await yieldToEventLoop()
  }
  if (previousTurn !== undefined) texts.add(previousTurn.input, previousTurn.texts.input)
  await yieldToEventLoop()
  return texts
}

function toResponse({ response, texts }: StoredTurn): StoredResponse {
  return { response, text: texts.response }
}

/** If the turn cannot be stored, requests that refer to it are rejected. */
async function writeTurn(store: TurnStore, scope: string, { id, texts }: StoredTurn): Promise<void> {
  if (texts.response.length + texts.input.length > MAX_CONVERSATION_LENGTH) return
  const options = { ttlMs: TURN_TTL_MS, quota: quotaOf('turn', scope) }
  await Promise.allSettled(PARTS.map((part) => store.set(partStoreKey({ scope, id, part }), texts[part], options)))
}

function isValidId(id: string): boolean {
  return /^[\w-]{1,200}$/.test(id)
}

function prefixOf(kind: 'turn' | 'held' | 'unsettled', scope: string): string {
  return `${kind}:${scope}:`
}

function partStoreKey({ scope, id, part }: TurnLocation): string {
  return `${prefixOf('turn', scope)}${id}:${part}`
}

function providerStoreKey(scope: string, id: string): string {
  return `${prefixOf('held', scope)}${id}`
}

function unsettledStoreKey(scope: string, id: string): string {
  return `${prefixOf('unsettled', scope)}${id}`
}

function parseResponse(text: string | undefined): JsonObject | undefined {
  const value: unknown = text === undefined ? undefined : JSON.parse(text)
  return isJsonObject(value) ? value : undefined
}

function restrictToProvider(resolved: ResolvedModel, providerName: string): ResolvedModel {
  const routes = resolved.routes.filter(({ provider }) => provider.name === providerName)
  const restricted = toResolvedModel(resolved.name, routes)
  if (restricted !== undefined) return restricted
  throw new GatewayError(
    'invalid-request',
    `The request refers to a response that the provider ${providerName} stores, but the requested model belongs to another provider. Choose a model of ${providerName}, or send the full conversation as input.`,
    { param: 'previous_response_id', code: 'previous_response_not_found' },
  )
}

function severalProviders(first: string, second: string): GatewayError {
  return new GatewayError(
    'invalid-request',
    `The request refers to responses of different providers, ${first} and ${second}; expected one. Send the items themselves.`,
    { param: 'input' },
  )
}

function tooManyReferences(references: string): GatewayError {
  return new GatewayError(
    'invalid-request',
    `input refers to ${references}. Send the items themselves, or continue the conversation with previous_response_id.`,
    { param: 'input' },
  )
}
