/** The index of customers by name and by parent. */
import type { Store } from '../../core/store.ts'
import { escapeId } from '../../governance/caller.ts'
import { CUSTOMER_PREFIX, type Customer } from './customer.ts'

const NAME_PREFIX = 'customer-name:'
const CHILD_PREFIX = 'customer-child:'
/** Longer names are found by their beginning, which the record then confirms. */
const MAX_INDEXED_NAME = 64

/** A range of keys, each of which leads to one customer. */
export interface KeyRange {
  readonly prefix: string
  /** Joined with `rest`, the part of a key that identifies it in a cursor. */
  readonly base: string
}

function indexedName(name: string): string {
  return escapeId(name.toLowerCase().slice(0, MAX_INDEXED_NAME))
}

export function nameEntry({ id, name }: Pick<Customer, 'id' | 'name'>): string {
  return `${NAME_PREFIX}${indexedName(name)}:${id}`
}

export function entriesOf(customer: Pick<Customer, 'id' | 'name' | 'parent'>): readonly string[] {
  const { id, parent } = customer
  return [nameEntry(customer), ...(parent === undefined ? [] : [`${CHILD_PREFIX}${parent}:${id}`])]
}

export const allIds: KeyRange = { prefix: CUSTOMER_PREFIX, base: CUSTOMER_PREFIX }

export function idsFrom(beginning: string): KeyRange {
  return { prefix: CUSTOMER_PREFIX + beginning, base: CUSTOMER_PREFIX }
}

export function namesFrom(beginning: string): KeyRange {
  return { prefix: NAME_PREFIX + indexedName(beginning), base: NAME_PREFIX }
}

export function childrenOf(parent: string): KeyRange {
  const prefix = `${CHILD_PREFIX}${parent}:`
  return { prefix, base: prefix }
}

export function idOfEntry(key: string): string {
  return key.slice(key.lastIndexOf(':') + 1)
}

/**
 * Writes and removes entries. An entry is written before its record and removed after it, so a crash leaves at most an entry
 * that does not match its record, and readers ignore those. Each write has a value of its own, and a removal applies only to
 * the value that was there before the record changed: a concurrent change back to the same name keeps its entry.
 */
export class CustomerIndex {
  readonly #store: Store
  readonly #uuid: () => string

  constructor(store: Store, uuid: () => string) {
    this.#store = store
    this.#uuid = uuid
  }

  async write(entries: readonly string[]): Promise<void> {
    await Promise.all(entries.map((entry) => this.#store.set(entry, this.#uuid())))
  }

  /** Returns a function that removes the entries as they are now. */
  async removal(entries: readonly string[]): Promise<() => Promise<void>> {
    const values = await Promise.all(entries.map((entry) => this.#store.get(entry)))
    return async () => {
      await Promise.all(
        entries.map(async (entry, index) => {
          const value = values[index]
          if (value !== undefined) await this.#store.swap(entry, value, undefined)
        }),
      )
    }
  }
}
