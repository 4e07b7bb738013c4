import { GatewayError } from '../core/errors.ts'
import { quotaOf, type Settlement, type WriteOptions } from '../core/store.ts'
import { isJsonObject, type JsonObject, parseJson } from '../core/json.ts'
import {
  type Batch,
  type BatchStore,
  changeBatch,
  type ItemCounts,
  headKey,
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
import type { BatchParts } from './batch-repository.ts'

export interface ItemClaim {
  readonly batch: OpenBatch
  readonly position: string
  storedValue: string
}

export type ClaimResult =
  | { readonly kind: 'claimed'; readonly claim: ItemClaim }
  /** Another process has claimed or delayed the item until about this time. */
  | { readonly kind: 'busy'; readonly until: number }
  | { readonly kind: 'gone' }

export interface ItemResult {
  readonly line: string
  /** The settlement that must run before the item is closed. Absent if it has run, or if no money was reserved. */
  readonly settlement?: Settlement
}

/**
 * Batch items, claimed by lease.
 *
 * An item's `todo` value contains the expiry and the id of a claim. After the expiry, another process may replace the
 * value and thereby claim the item, so the items of a killed process become available.
 *
 * An item ends in four idempotent steps: store the result and its settlement, unless a result exists; settle; reduce
 * the result to its line; delete the `todo` value. If a process dies, the next process to claim the item continues with
 * the next step. Each item therefore has one result, which is settled once.
 */
export interface ItemQueue {
  positions(batch: OpenBatch, after: string | undefined): Promise<readonly string[]>
  claim(batch: OpenBatch, position: string): Promise<ClaimResult>
  /** Resolves with false if another process has claimed the item. */
  renew(claim: ItemClaim): Promise<boolean>
  /** Any process may claim the item after `at`, in milliseconds since 1970. */
  release(claim: ItemClaim, at: number): Promise<void>
  batch(open: OpenBatch): Promise<Batch | undefined>
  request(claim: ItemClaim): Promise<StoredRequest | undefined>
  result(claim: ItemClaim): Promise<ItemResult | undefined>
  /**
   * Stores a result and resolves with it. If the answer exceeds the key's quota, stores an error instead, but still
   * settles the cost. If the item already has a different result, resolves with undefined.
   */
  finish(claim: ItemClaim, result: ItemResult): Promise<ItemResult | undefined>
  /** Deletes all values of the item except its line. Must be called after the settlement. */
  close(claim: ItemClaim, result: ItemResult): Promise<void>
  end(batch: OpenBatch): Promise<void>
}

export interface StoredRequest {
  readonly customId: string
  readonly params: JsonObject
}

export interface ItemQueueOptions extends BatchParts {
  readonly leaseMs: number
}

const PAGE_SIZE = 64

export function createItemQueue(options: ItemQueueOptions): ItemQueue {
  const { store, now, uuid, leaseMs } = options
  const key = (
    kind: 'todo' | 'request' | 'result',
    { batch, position }: Pick<ItemClaim, 'batch' | 'position'>,
  ): string => itemKey(kind, batch.id, position)
  const newClaim = (): string => `${now() + leaseMs} ${uuid()}`

  async function positions(batch: OpenBatch, after: string | undefined): Promise<readonly string[]> {
    const prefix = itemPrefix('todo', batch.id)
    const keys = await store.list(prefix, { limit: PAGE_SIZE, ...(after !== undefined && { after: prefix + after }) })
    return keys.map((found) => found.slice(prefix.length))
  }

  async function claimItem(batch: OpenBatch, position: string): Promise<ClaimResult> {
    const todo = key('todo', { batch, position })
    const storedValue = newClaim()
    const write = smallValueOptions(batch.keyId)
    if (await store.swap(todo, UNCLAIMED, storedValue, write))
      return { kind: 'claimed', claim: { batch, position, storedValue } }
    const found = await store.get(todo)
    if (found === undefined) return { kind: 'gone' }
    const until = Number(found.split(' ', 1)[0])
    if (until > now()) return { kind: 'busy', until }
    if (await store.swap(todo, found, storedValue, write))
      return { kind: 'claimed', claim: { batch, position, storedValue } }
    return { kind: 'busy', until: now() + leaseMs }
  }

  async function renew(claim: ItemClaim): Promise<boolean> {
    const storedValue = newClaim()
    const write = smallValueOptions(claim.batch.keyId)
    if (!(await store.swap(key('todo', claim), claim.storedValue, storedValue, write))) return false
    claim.storedValue = storedValue
    return true
  }

  async function request(claim: ItemClaim): Promise<StoredRequest | undefined> {
    const value = parseJson((await store.get(key('request', claim))) ?? '')
    const { custom_id: customId, params } = isJsonObject(value) ? value : {}
    return typeof customId === 'string' && isJsonObject(params) ? { customId, params } : undefined
  }

  async function result(claim: ItemClaim): Promise<ItemResult | undefined> {
    const value = await store.get(key('result', claim))
    return value === undefined ? undefined : readResult(value)
  }

  async function finish(claim: ItemClaim, newResult: ItemResult): Promise<ItemResult | undefined> {
    const { keyId } = claim.batch
    try {
      return await put(claim, newResult, { quota: quotaOf('batch', keyId) })
    } catch (error) {
      if (!GatewayError.is(error) || error.kind !== 'quota-exceeded') throw error
      return put(claim, { ...newResult, line: storageFullLine(newResult.line) }, smallValueOptions(keyId))
    }
  }

  /**
   * If the swap fails, compares the stored value, because an earlier swap may have succeeded although its reply was
   * lost.
   */
  async function put(claim: ItemClaim, newResult: ItemResult, write: WriteOptions): Promise<ItemResult | undefined> {
    const resultKey = key('result', claim)
    const value = writeResult(newResult)
    const isOurs = (await store.swap(resultKey, undefined, value, write)) || (await store.get(resultKey)) === value
    return isOurs ? newResult : undefined
  }

  async function close(claim: ItemClaim, newResult: ItemResult): Promise<void> {
    const value = writeResult(newResult)
    const write = smallValueOptions(claim.batch.keyId)
    if (value !== newResult.line) await store.swap(key('result', claim), value, newResult.line, write)
    await store.delete(key('request', claim))
    await store.delete(key('todo', claim))
  }

  async function release(claim: ItemClaim, at: number): Promise<void> {
    await store.swap(key('todo', claim), claim.storedValue, String(Math.ceil(at)), smallValueOptions(claim.batch.keyId))
  }

  async function end(batch: OpenBatch): Promise<void> {
    const counts = await countResults(options, batch)
    await changeBatch(store, batch, (current) =>
      current.state === 'working' ? { ...current, state: 'ended', endedAt: now(), counts } : current,
    )
    await store.delete(OPEN_PREFIX + batch.id)
  }

  return {
    positions,
    claim: claimItem,
    renew,
    release,
    batch: async ({ keyId, id }) => parseBatch(await store.get(headKey(keyId, id))),
    request,
    result,
    finish,
    close,
    end,
  }
}

async function countResults(parts: BatchStore, batch: OpenBatch): Promise<ItemCounts> {
  const counts = { ...NO_COUNTS }
  for await (const value of valuesOf(parts, itemPrefix('result', batch.id))) counts[outcomeOf(value)] += 1
  return counts
}

/** Matches the result type at the start of the line, before any text of a caller or a model. */
const LINE_START = /^\{"result":\{"type":"(succeeded|errored|canceled|expired)"/

/** Start of the last field. Occurs only once in a line, because quotes inside strings are escaped. */
const CUSTOM_ID_FIELD = ',"custom_id":'

/** @param body The message or the error, as JSON. */
export function writeResultLine(customId: string, end: ItemOutcome, body?: string): string {
  const field = end === 'succeeded' ? 'message' : 'error'
  const content = body === undefined ? '' : `,"${field}":${oneLine(body)}`
  return `{"result":{"type":"${end}"${content}}${CUSTOM_ID_FIELD}${JSON.stringify(customId)}}`
}

const QUOTA_EXCEEDED = {
  type: 'error',
  error: {
    type: 'invalid_request_error',
    message:
      "The answer was generated and billed, but it exceeds the key's storage quota for message batches. Delete ended batches before you create new ones.",
  },
  request_id: null,
}

/** Replaces the answer in a line with an error, which is short enough to be stored always. */
function storageFullLine(line: string): string {
  return `{"result":{"type":"errored","error":${JSON.stringify(QUOTA_EXCEEDED)}}${line.slice(line.lastIndexOf(CUSTOM_ID_FIELD))}`
}

function outcomeOf(value: string): ItemOutcome {
  return (LINE_START.exec(value)?.[1] ?? 'errored') as ItemOutcome
}

/** An upstream's JSON may contain line breaks. */
function oneLine(json: string): string {
  return /[\r\n]/.test(json) ? JSON.stringify(JSON.parse(json)) : json
}

function writeResult({ line, settlement }: ItemResult): string {
  return settlement === undefined ? line : `${line}\n${JSON.stringify(settlement)}`
}

function readResult(value: string): ItemResult {
  const line = firstLine(value)
  const settlement = parseJson(value.slice(line.length + 1))
  return isSettlement(settlement) ? { line, settlement } : { line }
}

function isSettlement(value: unknown): value is Settlement {
  return isJsonObject(value) && typeof value['reservationId'] === 'string' && Array.isArray(value['charges'])
}

type PollResult =
  | { readonly kind: 'item'; readonly claim: ItemClaim }
  /** No item is available until about this time. */
  | { readonly kind: 'wait'; readonly until: number }
  | { readonly kind: 'none' }

/** Claims the unfinished items of one batch, cyclically. */
export interface ItemPoll {
  readonly batch: OpenBatch
  next(): Promise<PollResult>
}

/**
 * @param start The position before the first item. Differs between processes, so that they begin with different items.
 */
export function createItemPoll(queue: ItemQueue, batch: OpenBatch, start?: string): ItemPoll {
  let ahead: string[] = []
  let last = start

  async function next(): Promise<PollResult> {
    const cycle = { isFromStart: last === undefined, busyCount: 0, availableAt: Infinity }
    for (;;) {
      if (ahead.length === 0) ahead = [...(await queue.positions(batch, last))]
      const position = ahead.shift()
      if (position === undefined) {
        last = undefined
        if (cycle.isFromStart) {
          return cycle.busyCount === 0 ? { kind: 'none' } : { kind: 'wait', until: cycle.availableAt }
        }
        cycle.isFromStart = true
        cycle.busyCount = 0
        continue
      }
      last = position
      const result = await queue.claim(batch, position)
      if (result.kind === 'claimed') return { kind: 'item', claim: result.claim }
      if (result.kind !== 'busy') continue
      cycle.busyCount += 1
      cycle.availableAt = Math.min(cycle.availableAt, result.until)
    }
  }

  return { batch, next }
}
