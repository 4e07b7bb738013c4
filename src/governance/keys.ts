import type { JsonObject } from '../core/json.ts'
import { listedKey, publicKey } from './key-fields.ts'
import { parseKeyChange, parseNewKey, type KeyChange, type NewKey } from './key-schema.ts'
import type { Keyring } from './keyring.ts'
import { pageQuery } from './page-query.ts'
import type { UsageReports } from './usage-report.ts'
import type { VirtualKey } from './virtual-key.ts'

/** A key as the admin API writes it; see docs/keys.md for its fields. */
export type KeyRecord = JsonObject & { readonly id: string; readonly name: string }

/** A new key. `value` is its secret, which is returned only here and never stored. */
export type CreatedKey = KeyRecord & { readonly value: string }

/** A page of a list, in ascending order of ids. */
export interface KeyPage {
  readonly keys: readonly KeyRecord[]
  readonly has_more: boolean
}

/**
 * The virtual keys, in process: the same fields, checks and answers as the admin API under
 * `/api/governance/virtual-keys`. Errors are GatewayErrors of kind `invalid-admin-request` (a field is wrong; `param`
 * names it), `not-found` (no such key) or `overloaded` (the store does not answer).
 */
export interface Keys {
  create(fields: NewKey): Promise<CreatedKey>
  get(id: string): Promise<KeyRecord>
  /** @param query `limit` 1 to 1,000, default 100; `after` the last id of the page before. */
  list(query?: { readonly limit?: number; readonly after?: string }): Promise<KeyPage>
  update(id: string, change: KeyChange): Promise<KeyRecord>
  /** Usage and audit records stay. */
  delete(id: string): Promise<{ readonly id: string; readonly object: 'virtual_key'; readonly deleted: true }>
  /** What the key used in the present window of its budget, or in the month. */
  usage(id: string): Promise<JsonObject>
  /** What is left of the key's request and token limits. */
  rateLimit(id: string): Promise<JsonObject>
  /** What is left of the key's requests, tokens and money, shared limits included: what the key itself may ask for. */
  limits(id: string): Promise<JsonObject>
}

/** The same for bodies that are not checked yet. */
export interface KeyDesk extends Keys {
  create(fields: unknown): Promise<CreatedKey>
  update(id: string, change: unknown): Promise<KeyRecord>
}

export function createKeys(parts: { readonly keyring: Keyring; readonly reports: UsageReports }): KeyDesk {
  const { keyring, reports } = parts

  const shown = async (key: VirtualKey): Promise<KeyRecord> => {
    const [spent = 0] = await reports.spentCents([key])
    return named(key, publicKey(key, { current_usage_cents: spent }))
  }

  return {
    create: async (fields) => {
      const { key, secret } = await keyring.create(parseNewKey(fields))
      return { ...(await shown(key)), value: secret }
    },
    get: async (id) => shown(await keyring.read(id)),
    list: async (query = {}) => {
      const { records, hasMore } = await keyring.page(pageQuery(query))
      const spent = await reports.spentCents(records)
      const keys = records.map((key, index) => named(key, listedKey(key, { current_usage_cents: spent[index] ?? 0 })))
      return { keys, has_more: hasMore }
    },
    update: async (id, change) => shown(await keyring.update(id, parseKeyChange(change))),
    delete: async (id) => {
      await keyring.remove(id)
      return { id, object: 'virtual_key', deleted: true }
    },
    usage: async (id) => reports.usage(await keyring.read(id)),
    rateLimit: async (id) => reports.rateLimit(await keyring.read(id)),
    limits: async (id) => reports.limits(await keyring.read(id)),
  }
}

function named(key: VirtualKey, fields: JsonObject): KeyRecord {
  return { ...fields, id: key.id, name: key.name }
}
