import { GatewayError } from '../core/errors.ts'
import { quotaOf, type Settlement, type WriteOptions } from '../core/store.ts'
import { isJsonObject, type JsonObject, parseJson } from '../core/json.ts'
import {
  type Batch,
  type BatchStore,
  changeBatch,
  type Counts,
  headKey,
  type ItemEnd,
  itemKey,
  itemsOf,
  lineOf,
  NO_COUNTS,
  OPEN,
  type OpenBatch,
  parseBatch,
  smallValueOf,
  UNCLAIMED,
  valuesOf,
} from './batch.ts'
import type { BatchParts } from './batch-repository.ts'

/** An item that this process has claimed. */
export interface ItemClaim {
  readonly batch: OpenBatch
  readonly position: string
  /** The stored value during the claim. */
  storedValue: string
}

export type TakeResult =
  | { readonly kind: 'claimed'; readonly claim: ItemClaim }
  /** The item is claimed by another process or delayed until about this time. */
  | { readonly kind: 'busy'; readonly until: number }
  | { readonly kind: 'gone' }

/** The stored value of a finished item. */
export interface ItemResult {
  /** One line of the results. */
  readonly line: string
  /** The settlement to make before the item is closed. Absent without reserved money and after the settlement. */
  readonly settlement?: Settlement
}

/**
 * Items of batches, claimed by lease. Each item has a `todo` value: a time and an owner. Before that time, only the
 * owner changes the value. Afterwards, the process that replaces the value atomically becomes the owner, so the items
 * of a killed process become available when the lease expires. An item ends in four idempotent steps: store the result
 * and its settlement, unless a result exists; settle; reduce the result to its line; delete the `todo` value. After the
 * death of a process, the next owner continues with the next step. Each item therefore has one result, which is settled
 * once.
 */
export interface ItemQueue {
  /** Returns unfinished items after a position, in order. */
  positions(batch: OpenBatch, after: string | undefined): Promise<readonly string[]>
  take(batch: OpenBatch, position: string): Promise<TakeResult>
  /** Renews the lease of an item. Resolves with false if another process has claimed the item. */
  renew(claim: ItemClaim): Promise<boolean>
  /** Releases the item. Any process may claim it from `at`, in milliseconds since 1970. */
  release(claim: ItemClaim, at: number): Promise<void>
  /** Returns the current batch. */
  batch(of: OpenBatch): Promise<Batch | undefined>
  request(claim: ItemClaim): Promise<StoredRequest | undefined>
  result(claim: ItemClaim): Promise<ItemResult | undefined>
  /**
   * Stores the result and returns it. When the answer exceeds the key's quota, an error is stored instead, and the cost
   * is still settled. Resolves with undefined if another result exists, which remains in effect.
   */
  finish(claim: ItemClaim, result: ItemResult): Promise<ItemResult | undefined>
  /** Called after the settlement. Deletes all values of the item except its line. */
  close(claim: ItemClaim, result: ItemResult): Promise<void>
  /** Ends a batch without unfinished items and counts its results. */
  end(batch: OpenBatch): Promise<void>
}

export interface StoredRequest {
  readonly customId: string
  readonly params: JsonObject
}

export interface ItemQueueOptions extends BatchParts {
  readonly leaseMs: number
}

const PAGE = 64

export function createItemQueue(options: ItemQueueOptions): ItemQueue {
  const { store, now, uuid, leaseMs } = options
  const key = (
    kind: 'todo' | 'request' | 'result',
    { batch, position }: Pick<ItemClaim, 'batch' | 'position'>,
  ): string => itemKey(kind, batch.id, position)
  const holding = (): string => `${now() + leaseMs} ${uuid()}`

  async function positions(batch: OpenBatch, after: string | undefined): Promise<readonly string[]> {
    const prefix = itemsOf('todo', batch.id)
    const keys = await store.list(prefix, { limit: PAGE, ...(after !== undefined && { after: prefix + after }) })
    return keys.map((found) => found.slice(prefix.length))
  }

  async function take(batch: OpenBatch, position: string): Promise<TakeResult> {
    const todo = key('todo', { batch, position })
    const storedValue = holding()
    const write = smallValueOf(batch.keyId)
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
    const storedValue = holding()
    const write = smallValueOf(claim.batch.keyId)
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

  async function finish(claim: ItemClaim, given: ItemResult): Promise<ItemResult | undefined> {
    const { keyId } = claim.batch
    try {
      return await put(claim, given, { quota: quotaOf('batch', keyId) })
    } catch (error) {
      if (!GatewayError.is(error) || error.kind !== 'quota-exceeded') throw error
      return put(claim, { ...given, line: quotaFullLine(given.line) }, smallValueOf(keyId))
    }
  }

  /**
   * Stores a result. Reads the value after a failed write, because the write may have succeeded although its reply was
   * lost.
   */
  async function put(claim: ItemClaim, given: ItemResult, write: WriteOptions): Promise<ItemResult | undefined> {
    const slot = key('result', claim)
    const value = writeResult(given)
    const isOurs = (await store.swap(slot, undefined, value, write)) || (await store.get(slot)) === value
    return isOurs ? given : undefined
  }

  async function close(claim: ItemClaim, given: ItemResult): Promise<void> {
    const value = writeResult(given)
    const write = smallValueOf(claim.batch.keyId)
    if (value !== given.line) await store.swap(key('result', claim), value, given.line, write)
    await store.delete(key('request', claim))
    await store.delete(key('todo', claim))
  }

  async function release(claim: ItemClaim, at: number): Promise<void> {
    await store.swap(key('todo', claim), claim.storedValue, String(Math.ceil(at)), smallValueOf(claim.batch.keyId))
  }

  async function end(batch: OpenBatch): Promise<void> {
    const counts = await countResults(options, batch)
    await changeBatch(store, batch, (present) =>
      present.state === 'working' ? { ...present, state: 'ended', endedAt: now(), counts } : present,
    )
    await store.delete(OPEN + batch.id)
  }

  return {
    positions: positions,
    take,
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

/** Reads every result once. */
async function countResults(parts: BatchStore, batch: OpenBatch): Promise<Counts> {
  const counts = { ...NO_COUNTS }
  for await (const value of valuesOf(parts, itemsOf('result', batch.id))) counts[endOf(value)] += 1
  return counts
}

/** The outcome is at the start of the line, before any text of a caller or a model. */
const LINE_START = /^\{"result":\{"type":"(succeeded|errored|canceled|expired)"/

/** Beginning of the last field of a line. Unique, because quotes inside earlier strings are escaped. */
const CUSTOM_ID = ',"custom_id":'

/** Writes one line of the results. `body` is the JSON text of the message or of the error. */
export function writeLine(customId: string, end: ItemEnd, body?: string): string {
  const field = end === 'succeeded' ? 'message' : 'error'
  const content = body === undefined ? '' : `,"${field}":${oneLine(body)}`
  return `{"result":{"type":"${end}"${content}}${CUSTOM_ID}${JSON.stringify(customId)}}`
}

const QUOTA_EXCEEDED = {
  type: 'error',
  error: {
    type: 'invalid_request_error',
    message:
      "The answer was generated and billed, but does not fit the key's storage quota for message batches. Delete ended batches before you create new ones.",
  },
  request_id: null,
}

/** Returns the line of the same item with an error instead of its answer. The line is short enough to fit any quota. */
function quotaFullLine(line: string): string {
  return `{"result":{"type":"errored","error":${JSON.stringify(QUOTA_EXCEEDED)}}${line.slice(line.lastIndexOf(CUSTOM_ID))}`
}

function endOf(value: string): ItemEnd {
  return (LINE_START.exec(value)?.[1] ?? 'errored') as ItemEnd
}

/** Removes line breaks, because the JSON of an upstream may span several lines. */
function oneLine(json: string): string {
  return /[\r\n]/.test(json) ? JSON.stringify(JSON.parse(json)) : json
}

function writeResult({ line, settlement }: ItemResult): string {
  return settlement === undefined ? line : `${line}\n${JSON.stringify(settlement)}`
}

function readResult(value: string): ItemResult {
  const line = lineOf(value)
  const settlement = parseJson(value.slice(line.length + 1))
  return isSettlement(settlement) ? { line, settlement } : { line }
}

/** Returns true for the settlement of a line that `writeResult` wrote. */
function isSettlement(value: unknown): value is Settlement {
  return isJsonObject(value) && typeof value['reservationId'] === 'string' && Array.isArray(value['charges'])
}

/** The result of a poll. */
type Found =
  | { readonly kind: 'item'; readonly claim: ItemClaim }
  /** No item is available before about `until`. */
  | { readonly kind: 'wait'; readonly until: number }
  /** Every item is finished. */
  | { readonly kind: 'none' }

/** Polls the unfinished items of one batch in a cycle. */
export interface ItemPoll {
  readonly batch: OpenBatch
  next(): Promise<Found>
}

/** Creates a poll. Processes use different values of `start`, the preceding position, to begin with different items. */
export function createItemPoll(queue: ItemQueue, batch: OpenBatch, start?: string): ItemPoll {
  let ahead: string[] = []
  let last = start

  async function next(): Promise<Found> {
    const look = { fromStart: last === undefined, busy: 0, soonest: Infinity }
    for (;;) {
      if (ahead.length === 0) ahead = [...(await queue.positions(batch, last))]
      const place = ahead.shift()
      if (place === undefined) {
        last = undefined
        if (look.fromStart) return look.busy === 0 ? { kind: 'none' } : { kind: 'wait', until: look.soonest }
        look.fromStart = true
        look.busy = 0
        continue
      }
      last = place
      const taking = await queue.take(batch, place)
      if (taking.kind === 'claimed') return { kind: 'item', claim: taking.claim }
      if (taking.kind !== 'busy') continue
      look.busy += 1
      look.soonest = Math.min(look.soonest, taking.until)
    }
  }

  return { batch, next }
}
