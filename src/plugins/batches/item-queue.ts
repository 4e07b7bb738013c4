import { GatewayError } from '../../core/errors.ts'
import { quotaOf, type Settlement, type Store, type WriteOptions } from '../../core/store.ts'
import { isJsonObject, type JsonObject, parseJson } from '../../core/json.ts'
import { memberText } from '../../core/splice-json.ts'
import {
  type Batch,
  changeBatch,
  batchKey,
  type ItemOutcome,
  itemKey,
  itemPrefix,
  firstLine,
  NO_COUNTS,
  OPEN_PREFIX,
  type OpenBatch,
  parseBatch,
  smallValueOptions,
  UNCLAIMED,
  valuesOf,
} from './batch.ts'
import type { BatchRepositoryOptions } from './batch-repository.ts'

export interface ItemClaim {
  readonly batch: OpenBatch
  readonly position: string
  storedValue: string
}

type ClaimResult =
  | { readonly kind: 'claimed'; readonly claim: ItemClaim }
  /** The item is claimed or delayed until about this time. */
  | { readonly kind: 'busy'; readonly until: number }
  | { readonly kind: 'gone' }

export interface ItemResult {
  readonly line: string
  /** The settlement that must run before the item is closed. Absent if it has run, or if nothing was reserved. */
  readonly settlement?: Settlement
}

export interface StoredRequest {
  readonly customId: string
  readonly params: JsonObject
  /** The text of `params` as received. */
  readonly body: string
}

interface ItemQueueOptions extends BatchRepositoryOptions {
  readonly leaseMs: number
}

const PAGE_SIZE = 64

/**
 * A `todo` value begins with the time from which any worker may claim the item. The id of the current claim follows.
 *
 * An item ends in four idempotent steps, which another process can continue: store the result and its settlement;
 * settle; reduce the result to its line; delete the request and the `todo` value.
 */
export class ItemQueue {
  readonly #options: ItemQueueOptions
  readonly #store: Store

  constructor(options: ItemQueueOptions) {
    this.#options = options
    this.#store = options.store
  }

  async readBatch({ scope, id }: OpenBatch): Promise<Batch | undefined> {
    return parseBatch(await this.#store.get(batchKey(scope, id)))
  }

  async listPositions({ id }: OpenBatch, after: string | undefined): Promise<readonly string[]> {
    const prefix = itemPrefix('todo', id)
    const range = { limit: PAGE_SIZE, ...(after !== undefined && { after: prefix + after }) }
    const keys = await this.#store.list(prefix, range)
    return keys.map((key) => key.slice(prefix.length))
  }

  async claim(batch: OpenBatch, position: string): Promise<ClaimResult> {
    const { now, leaseMs } = this.#options
    const key = itemKey('todo', batch.id, position)
    const storedValue = this.#newClaimValue()
    const options = smallValueOptions(batch.scope)
    const claimed: ClaimResult = { kind: 'claimed', claim: { batch, position, storedValue } }
    if (await this.#store.swap(key, UNCLAIMED, storedValue, options)) return claimed
    const current = await this.#store.get(key)
    if (current === undefined) return { kind: 'gone' }
    const until = Number(current.split(' ', 1)[0])
    if (until > now()) return { kind: 'busy', until }
    if (await this.#store.swap(key, current, storedValue, options)) return claimed
    return { kind: 'busy', until: now() + leaseMs }
  }

  /** Resolves with false if the claim has been lost. */
  async renew(claim: ItemClaim): Promise<boolean> {
    const value = this.#newClaimValue()
    const options = smallValueOptions(claim.batch.scope)
    if (!(await this.#store.swap(keyOf('todo', claim), claim.storedValue, value, options))) return false
    claim.storedValue = value
    return true
  }

  async release(claim: ItemClaim, at: number): Promise<void> {
    const options = smallValueOptions(claim.batch.scope)
    await this.#store.swap(keyOf('todo', claim), claim.storedValue, String(Math.ceil(at)), options)
  }

  async readRequest(claim: ItemClaim): Promise<StoredRequest | undefined> {
    const text = (await this.#store.get(keyOf('request', claim))) ?? ''
    const value = parseJson(text)
    const { custom_id: customId, params } = isJsonObject(value) ? value : {}
    if (typeof customId !== 'string' || !isJsonObject(params)) return undefined
    return { customId, params, body: memberText(text, 'params') ?? JSON.stringify(params) }
  }

  async readResult(claim: ItemClaim): Promise<ItemResult | undefined> {
    const value = await this.#store.get(keyOf('result', claim))
    return value === undefined ? undefined : parseResult(value)
  }

  /** Resolves with undefined if the item already has a different result. */
  async finish(claim: ItemClaim, result: ItemResult): Promise<ItemResult | undefined> {
    const { scope } = claim.batch
    try {
      return await this.#putResult(claim, result, { quota: quotaOf('batch', scope) })
    } catch (error) {
      if (!GatewayError.is(error) || error.kind !== 'quota-exceeded') throw error
      return this.#putResult(claim, { ...result, line: storageFullLine(result.line) }, smallValueOptions(scope))
    }
  }

  /** Must be called after the settlement. */
  async close(claim: ItemClaim, result: ItemResult): Promise<void> {
    const value = writeResult(result)
    const options = smallValueOptions(claim.batch.scope)
    if (value !== result.line) await this.#store.swap(keyOf('result', claim), value, result.line, options)
    await this.#store.delete(keyOf('request', claim))
    await this.#store.delete(keyOf('todo', claim))
  }

  async end(batch: OpenBatch): Promise<void> {
    const counts = { ...NO_COUNTS }
    for await (const value of valuesOf(this.#options, itemPrefix('result', batch.id))) counts[outcomeOf(value)] += 1
    await changeBatch(this.#store, batch, (current) =>
      current.state === 'working' ? { ...current, state: 'ended', endedAt: this.#options.now(), counts } : current,
    )
    await this.#store.delete(OPEN_PREFIX + batch.id)
  }

  /** Compares the stored value, because an earlier swap may have succeeded although its reply was lost. */
  async #putResult(claim: ItemClaim, result: ItemResult, options: WriteOptions): Promise<ItemResult | undefined> {
    const key = keyOf('result', claim)
    const value = writeResult(result)
    const isOurs = (await this.#store.swap(key, undefined, value, options)) || (await this.#store.get(key)) === value
    return isOurs ? result : undefined
  }

  #newClaimValue(): string {
    const { now, uuid, leaseMs } = this.#options
    return `${now() + leaseMs} ${uuid()}`
  }
}

function keyOf(kind: 'todo' | 'request' | 'result', { batch, position }: ItemClaim): string {
  return itemKey(kind, batch.id, position)
}

/** Matches the result type at the start of the line, before any text of a caller or a model. */
const LINE_START = /^\{"result":\{"type":"(succeeded|errored|canceled|expired)"/

/** Start of the last field of a line. The last occurrence is this field, because quotes in the id are escaped. */
const CUSTOM_ID_FIELD = ',"custom_id":'

/** @param body The message or the error, as JSON. */
export function writeResultLine(customId: string, outcome: ItemOutcome, body?: string): string {
  const field = outcome === 'succeeded' ? 'message' : 'error'
  const content = body === undefined ? '' : `,"${field}":${toOneLine(body)}`
  return `{"result":{"type":"${outcome}"${content}}${CUSTOM_ID_FIELD}${JSON.stringify(customId)}}`
}

const QUOTA_EXCEEDED = {
  type: 'error',
  error: {
    type: 'invalid_request_error',
    message:
      "The result of this item exceeds the key's storage quota for message batches. If a response was generated, it was billed. Delete ended batches before you create new ones.",
  },
  request_id: null,
}

function storageFullLine(line: string): string {
  return `{"result":{"type":"errored","error":${JSON.stringify(QUOTA_EXCEEDED)}}${line.slice(line.lastIndexOf(CUSTOM_ID_FIELD))}`
}

function outcomeOf(value: string): ItemOutcome {
  return (LINE_START.exec(value)?.[1] ?? 'errored') as ItemOutcome
}

/** Removes line breaks, which an upstream's JSON may contain between tokens. */
function toOneLine(json: string): string {
  return json.replace(/[\r\n]+/g, ' ')
}

function writeResult({ line, settlement }: ItemResult): string {
  return settlement === undefined ? line : `${line}\n${JSON.stringify(settlement)}`
}

function parseResult(value: string): ItemResult {
  const line = firstLine(value)
  const settlement = parseJson(value.slice(line.length + 1))
  return isSettlement(settlement) ? { line, settlement } : { line }
}

function isSettlement(value: unknown): value is Settlement {
  return isJsonObject(value) && typeof value['reservationId'] === 'string' && Array.isArray(value['charges'])
}

type PollResult =
  | { readonly kind: 'item'; readonly claim: ItemClaim }
  | { readonly kind: 'wait'; readonly until: number }
  | { readonly kind: 'none' }

export class ItemPoll {
  readonly batch: OpenBatch
  readonly #queue: ItemQueue
  #nextPositions: string[] = []
  #lastPosition: string | undefined

  constructor(queue: ItemQueue, batch: OpenBatch, after?: string) {
    this.#queue = queue
    this.batch = batch
    this.#lastPosition = after
  }

  async next(): Promise<PollResult> {
    let isFromStart = this.#lastPosition === undefined
    let availableAt: number | undefined
    for (;;) {
      if (this.#nextPositions.length === 0) {
        this.#nextPositions = [...(await this.#queue.listPositions(this.batch, this.#lastPosition))]
      }
      const position = this.#nextPositions.shift()
      this.#lastPosition = position
      if (position !== undefined) {
        const result = await this.#queue.claim(this.batch, position)
        if (result.kind === 'claimed') return { kind: 'item', claim: result.claim }
        if (result.kind === 'busy') availableAt = Math.min(availableAt ?? Infinity, result.until)
      } else if (isFromStart) {
        return availableAt === undefined ? { kind: 'none' } : { kind: 'wait', until: availableAt }
      } else {
        isFromStart = true
        availableAt = undefined
      }
    }
  }
}
