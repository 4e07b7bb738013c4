/** Which keys each customer has used, so that what is stored for its requests can be found. */
import { RecentMap } from '../../core/recent-map.ts'
import type { Store } from '../../core/store.ts'
import type { Customer } from './customer.ts'

const PREFIX = 'customer-key:'
const MAX_KNOWN = 10_000
const PAGE_SIZE = 100

type Created = Pick<Customer, 'createdAt'>

const FORGOTTEN: Created = { createdAt: Number.NaN }

function entryOf(customer: string, keyId: string): string {
  return `${PREFIX}${customer}:${keyId}`
}

export class CustomerScopes {
  readonly #store: Pick<Store, 'get' | 'set' | 'list' | 'delete'>
  /** Entries that exist. A customer that was deleted and created again has another time. */
  readonly #known = new RecentMap<string, Created>(MAX_KNOWN)

  constructor(store: Pick<Store, 'get' | 'set' | 'list' | 'delete'>) {
    this.#store = store
  }

  /** Must be called before anything is stored for a request of the customer. Returns undefined if the entry is known. */
  add({ id, createdAt }: Pick<Customer, 'id' | 'createdAt'>, keyId: string): Promise<void> | undefined {
    const entry = entryOf(id, keyId)
    return this.#known.get(entry)?.createdAt === createdAt ? undefined : this.#write(entry, createdAt)
  }

  async #write(entry: string, createdAt: number): Promise<void> {
    if ((await this.#store.get(entry)) === undefined) await this.#store.set(entry, '')
    this.#known.set(entry, { createdAt })
  }

  /** Yields ids of keys. They may be deleted while they are read. */
  async *keysOf(customer: string): AsyncGenerator<string, void, undefined> {
    const prefix = entryOf(customer, '')
    for (let after: string | undefined; ;) {
      const entries = await this.#store.list(prefix, { limit: PAGE_SIZE, ...(after !== undefined && { after }) })
      for (const entry of entries) yield entry.slice(prefix.length)
      if (entries.length < PAGE_SIZE) return
      after = entries.at(-1)
    }
  }

  async remove(customer: string, keyId: string): Promise<void> {
    const entry = entryOf(customer, keyId)
    this.#known.set(entry, FORGOTTEN)
    await this.#store.delete(entry)
  }
}
