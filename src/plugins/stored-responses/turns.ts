import { mapInSlices } from '../../core/async.ts'
import { GatewayError } from '../../core/errors.ts'
import { asArray, isJsonObject, type Json, type JsonObject } from '../../core/json.ts'
import { quotaOf, type Store } from '../../core/store.ts'
import type { StoredTurn, TurnFormat } from '../../formats/format.ts'
import { ItemTexts, writeResolved } from '../../formats/responses/item-texts.ts'
import { memberText } from '../../core/splice-json.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'
import { removeForeignItemIds, typedItemIds } from '../../formats/responses/item-ids.ts'
import type { VirtualKey } from '../../governance/virtual-key.ts'
import { toResolvedModel } from '../../kernel/resolve-model.ts'
import { type Answered, type ResolvedModel } from '../../kernel/exchange.ts'
import { storingProvider } from './storing-provider.ts'
import type { CompletedBody, ReadBody } from '../../kernel/services.ts'
import { MAX_ITEMS } from '../../formats/responses/request-reader.ts'

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

type TurnStore = Pick<Store, 'get' | 'set' | 'delete'>

export interface Turns {
  recall(format: TurnFormat, key: VirtualKey, parsed: ReadBody): Promise<CompletedBody>
  store(answered: Answered, format: TurnFormat, turn: StoredTurn): Promise<void>
  /** Returns the answer as JSON text, because its numbers may not be exact after parsing. */
  find(key: VirtualKey, id: string): Promise<string | undefined>
  /** Returns the conversation without the answer, as the JSON text of an array. */
  findInput(key: VirtualKey, id: string): Promise<string | undefined>
  findProvider(key: VirtualKey, id: string): Promise<string | undefined>
  storeProvider(key: VirtualKey, ids: readonly string[], provider: string): Promise<void>
  /** A background response is unsettled while its request waits for settlement. */
  setUnsettled(key: VirtualKey, id: string, isUnsettled: boolean): Promise<void>
  isUnsettled(key: VirtualKey, id: string): Promise<boolean>
  /** Resolves with true if a stored turn or provider name was deleted. */
  delete(key: VirtualKey, id: string): Promise<boolean>
}

/**
 * Each turn contains its full conversation, because clients may continue from it after earlier turns have expired. The
 * answer is stored separately, because some reads need only the answer.
 */
export function createTurns(store: TurnStore): Turns {
  async function storeProvider(key: VirtualKey, ids: readonly string[], provider: string): Promise<void> {
    const options = { ttlMs: UPSTREAM_ID_TTL_MS, quota: quotaOf('held-response', key.id) }
    const valid = ids.filter(isValidId).slice(0, MAX_STORED_IDS)
    await Promise.all(valid.map((id) => store.set(providerStoreKey(key, id), provider, options)))
  }

  return {
    find: async (key, id) => {
      const text = await readPart(store, { key, id, part: 'answer' })
      return parseAnswer(text) === undefined ? undefined : text
    },
    findInput: async (key, id) => (await findTurn(store, key, id))?.texts.input,
    findProvider: async (key, id) => (isValidId(id) ? store.get(providerStoreKey(key, id)) : undefined),
    storeProvider,
    recall: (format, key, parsed) => recall(store, format, key, parsed),
    store: async (answered, format, turn) => {
      const { key } = answered
      const provider = storingProvider(answered)
      if (provider !== undefined) await storeProvider(key, format.idsOf(turn.answer), provider)
      else if (isValidId(turn.id)) await writeTurn(store, key, turn)
    },
    setUnsettled: async (key, id, isUnsettled) => {
      const storeKey = unsettledStoreKey(key, id)
      const options = { ttlMs: UNSETTLED_TTL_MS, quota: quotaOf('held-response', key.id) }
      await (isUnsettled && isValidId(id) ? store.set(storeKey, '1', options) : store.delete(storeKey))
    },
    isUnsettled: async (key, id) => isValidId(id) && (await store.get(unsettledStoreKey(key, id))) !== undefined,
    delete: async (key, id) => {
      if (!isValidId(id)) return false
      const storeKeys = [...PARTS.map((part) => partStoreKey({ key, id, part })), providerStoreKey(key, id)]
      const deleted = await Promise.all(storeKeys.map((storeKey) => store.delete(storeKey)))
      return deleted.includes(true)
    },
  }
}

async function recall(
  store: TurnStore,
  format: TurnFormat,
  key: VirtualKey,
  { body, received }: ReadBody,
): Promise<CompletedBody> {
  const { previousTurnId, referencedTurnIds, foreignItemIds } = format.referencesIn(body)
  const ids = previousTurnId === undefined ? foreignItemIds : [previousTurnId, ...foreignItemIds]
  const providers = await findProviders(store, key, ids)
  const isStoredHere = previousTurnId !== undefined && !providers.has(previousTurnId)
  const referenced = await findReferenced(store, key, referencedTurnIds)
  const turns = {
    previousTurn: isStoredHere ? await findTurn(store, key, previousTurnId) : undefined,
    referencedAnswers: new Map([...referenced].map(([id, { answer }]) => [id, answer])),
    upstreamIds: new Set(providers.keys()),
  }
  const [provider, secondProvider] = new Set(providers.values())
  if (secondProvider !== undefined) throw severalProviders(String(provider), secondProvider)
  const resolved = await checkItemIds(store, key, format.resolveReferences(body, turns))
  const isUnchanged = resolved === body || received === undefined
  const answers = [...referenced.values(), ...(turns.previousTurn === undefined ? [] : [toAnswer(turns.previousTurn)])]
  const bytes = isUnchanged ? received : writeResolved(resolved, body, received, await itemTexts(turns, answers))
  return {
    body: resolved,
    received: bytes,
    ...(provider !== undefined && {
      restrictRoutes: (resolved: ResolvedModel) => restrictToProvider(resolved, provider),
    }),
  }
}

/** Does not choose the provider: an item with an id also contains what the id names, so any provider can serve it. */
async function checkItemIds(store: TurnStore, key: VirtualKey, body: JsonObject): Promise<JsonObject> {
  // Longer inputs are rejected when they are read.
  if (asArray(body['input']).length > MAX_ITEMS) return body
  const ids = typedItemIds(body)
  const providers = ids.length === 0 ? new Map<string, string>() : await readProviders(store, key, ids)
  return removeForeignItemIds(body, new Set(providers.keys()))
}

async function findProviders(
  store: TurnStore,
  key: VirtualKey,
  ids: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  if (ids.length > MAX_REFERENCES) throw tooManyReferences(`more than ${MAX_REFERENCES} items`)
  return readProviders(store, key, ids)
}

async function readProviders(
  store: TurnStore,
  key: VirtualKey,
  ids: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const providers = new Map<string, string>()
  await mapInSlices(ids.filter(isValidId), MAX_CONCURRENT_ID_READS, async (id) => {
    const provider = await store.get(providerStoreKey(key, id))
    if (provider !== undefined) providers.set(id, provider)
  })
  return providers
}

interface TurnLocation {
  readonly key: VirtualKey
  readonly id: string
  readonly part: 'answer' | 'input'
}

const PARTS = ['answer', 'input'] as const

async function readPart(store: TurnStore, location: TurnLocation): Promise<string | undefined> {
  return isValidId(location.id) ? store.get(partStoreKey(location)) : undefined
}

async function findTurn(store: TurnStore, key: VirtualKey, id: string): Promise<StoredTurn | undefined> {
  const [answerText, inputText] = await Promise.all(PARTS.map((part) => readPart(store, { key, id, part })))
  const answer = parseAnswer(answerText)
  if (answer === undefined || answerText === undefined || inputText === undefined) return undefined
  const input = asArray(JSON.parse(inputText) as Json)
  return { id, answer, input, texts: { answer: answerText, input: inputText } }
}

async function findReferenced(
  store: TurnStore,
  key: VirtualKey,
  ids: readonly string[],
): Promise<ReadonlyMap<string, StoredAnswer>> {
  if (ids.length > MAX_REFERENCES) throw tooManyReferences(`items of more than ${MAX_REFERENCES} responses`)
  const answers = new Map<string, StoredAnswer>()
  let length = 0
  await mapInSlices(ids, MAX_CONCURRENT_READS, async (id) => {
    const text = await readPart(store, { key, id, part: 'answer' })
    length += text?.length ?? 0
    if (length > MAX_RECALLED_LENGTH) {
      throw tooManyReferences(`responses with more than ${MAX_RECALLED_LENGTH} characters in total`)
    }
    const answer = parseAnswer(text)
    if (answer !== undefined && text !== undefined) answers.set(id, { answer, text })
  })
  return answers
}

interface StoredAnswer {
  readonly answer: JsonObject
  readonly text: string
}

async function itemTexts(
  { previousTurn }: { readonly previousTurn: StoredTurn | undefined },
  answers: readonly StoredAnswer[],
): Promise<ItemTexts> {
  const texts = new ItemTexts()
  for (const { answer, text } of answers) {
    texts.add(asArray(answer['output']), memberText(text, 'output'))
    await yieldToEventLoop()
  }
  if (previousTurn !== undefined) texts.add(previousTurn.input, previousTurn.texts.input)
  await yieldToEventLoop()
  return texts
}

function toAnswer({ answer, texts }: StoredTurn): StoredAnswer {
  return { answer, text: texts.answer }
}

/** If the turn cannot be stored, requests that refer to it are rejected. */
async function writeTurn(store: TurnStore, key: VirtualKey, { id, texts }: StoredTurn): Promise<void> {
  if (texts.answer.length + texts.input.length > MAX_CONVERSATION_LENGTH) return
  const options = { ttlMs: TURN_TTL_MS, quota: quotaOf('turn', key.id) }
  await Promise.allSettled(PARTS.map((part) => store.set(partStoreKey({ key, id, part }), texts[part], options)))
}

function isValidId(id: string): boolean {
  return /^[\w-]{1,200}$/.test(id)
}

function partStoreKey({ key, id, part }: TurnLocation): string {
  return `turn:${key.id}:${id}:${part}`
}

function providerStoreKey(key: VirtualKey, id: string): string {
  return `held:${key.id}:${id}`
}

function unsettledStoreKey(key: VirtualKey, id: string): string {
  return `unsettled:${key.id}:${id}`
}

function parseAnswer(text: string | undefined): JsonObject | undefined {
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
