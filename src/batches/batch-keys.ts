/** Where the store keeps what belongs to batches. Nothing of it has an end of its own, so that no store drops any of it. */

/** One batch: `Batch` as JSON. Listed per key, newest first. */
export function headKey(keyId: string, id: string): string {
  return `${headsOf(keyId)}${id}`
}

export function headsOf(keyId: string): string {
  return `batch-head:${keyId}:`
}

/** Batches that are not ended: the id of their key. */
export const OPEN = 'batch-open:'

/** When something is to be tidied away: the id of the batch's key. Listed by time. */
export const DUE = 'batch-due:'
const TIME_DIGITS = 15

export function dueKey(at: number, id: string): string {
  return `${DUE}${String(Math.floor(at)).padStart(TIME_DIGITS, '0')}:${id}`
}

export function readDueKey(key: string): { readonly at: number; readonly id: string } {
  const [at = '', id = ''] = key.slice(DUE.length).split(':')
  return { at: Number(at), id }
}

/** The kinds of values that each item has. */
export type ItemValue =
  /** Who may touch the item; gone when it is finished. */
  | 'todo'
  /** `{custom_id, params}`. */
  | 'request'
  /** A line of the results, and what must be settled for it. */
  | 'result'

/** All values of one kind of one batch. */
export function itemsOf(kind: ItemValue, batchId: string): string {
  return `batch-${kind}:${batchId}:`
}

const INDEX_DIGITS = 5

/** The place of an item in its batch, as text that sorts. */
export function placeOf(index: number): string {
  return String(index).padStart(INDEX_DIGITS, '0')
}

export function itemKey(kind: ItemValue, batchId: string, place: string): string {
  return `${itemsOf(kind, batchId)}${place}`
}
