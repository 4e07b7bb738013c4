import { GatewayError } from '../core/errors.ts'
import type { Runtime } from '../core/ports.ts'
import type { Store } from '../core/store.ts'
import type {
  BudgetPage,
  BudgetRecord,
  CreatedKey,
  DeletedRecord,
  KeyLimits,
  KeyPage,
  KeyRateLimit,
  KeyRecord,
  KeyUsage,
  PageOptions,
  RateLimitPage,
  RateLimitRecord,
} from './admin-api.ts'
import { UNLIMITED } from './field-schema.ts'
import type { WireForm } from '../core/field-names.ts'
import { listedKey, publicKey } from './key-fields.ts'
import { parseKeyChange, parseNewKey } from './key-schema.ts'
import type { Keyring } from './keyring.ts'
import { pageQuery } from './page-query.ts'
import type { Page, PageQuery, RecordTable } from './record-table.ts'
import type { SharedLimits } from './shared-limits.ts'
import {
  changeBudget,
  changeRateLimit,
  parseBudget,
  parseBudgetChange,
  parseRateLimit,
  parseRateLimitChange,
} from './shared-schema.ts'
import { createUsageReports, type UsageReports } from './usage-report.ts'
import type { Budget, RateLimit, VirtualKey } from './virtual-key.ts'

/** Operations on the records of one kind, in the names of the wire. Bodies may be anything: they are checked here. */
export interface WireRecords<shown extends object, page extends object, created extends object = shown> {
  create(body: unknown): Promise<created>
  get(id: string): Promise<shown>
  list(query?: PageOptions): Promise<page>
  update(id: string, body: unknown): Promise<shown>
  delete(id: string): Promise<DeletedRecord>
}

/** The virtual keys in the names of the wire. */
export interface WireKeys extends WireRecords<WireForm<KeyRecord>, WireForm<KeyPage>, WireForm<CreatedKey>> {
  usage(id: string): Promise<WireForm<KeyUsage>>
  rateLimit(id: string): Promise<WireForm<KeyRateLimit>>
  limits(id: string): Promise<WireForm<KeyLimits>>
}

/** The records that the admin API and the gateway's own methods change and return. */
export interface AdminRecords {
  readonly keys: WireKeys
  readonly budgets: WireRecords<WireForm<BudgetRecord>, WireForm<BudgetPage>>
  readonly rateLimits: WireRecords<WireForm<RateLimitRecord>, WireForm<RateLimitPage>>
}

export interface AdminRecordParts {
  readonly store: Store
  readonly runtime: Pick<Runtime, 'now' | 'uuid'>
  readonly keyring: Keyring
  readonly shared: SharedLimits
}

export function createAdminRecords({ store, runtime, keyring, shared }: AdminRecordParts): AdminRecords {
  const reports = createUsageReports({ store, now: runtime.now, shared })
  return {
    keys: {
      ...recordsOf(keyKind(keyring, reports)),
      usage: async (id) => reports.usage(await keyring.read(id)),
      rateLimit: async (id) => reports.rateLimit(await keyring.read(id)),
      limits: async (id) => reports.limits(await keyring.read(id)),
    },
    budgets: recordsOf(budgetKind(shared.budgets, reports, runtime.uuid)),
    rateLimits: recordsOf(rateLimitKind(shared.rateLimits, runtime.uuid)),
  }
}

/** What differs between keys, budgets and rate limits. */
interface RecordKind<record, shown, page, created = shown> {
  readonly object: DeletedRecord['object']
  /** Reads the body of a creation and stores the record. */
  readonly create: (body: unknown) => Promise<created>
  readonly read: (id: string) => Promise<record>
  /** Reads the body of an update and stores the changed record. */
  readonly change: (id: string, body: unknown) => Promise<record>
  readonly remove: (id: string) => Promise<unknown>
  readonly page: (query: PageQuery) => Promise<Page<record>>
  readonly show: (record: record) => Promise<shown>
  readonly showPage: (records: readonly record[], hasMore: boolean) => Promise<page>
}

function recordsOf<record, shown extends object, page extends object, created extends object>(
  kind: RecordKind<record, shown, page, created>,
): WireRecords<shown, page, created> {
  return {
    create: async (body) => kind.create(body),
    get: async (id) => kind.show(await kind.read(id)),
    list: async (query = {}) => {
      const { records, hasMore } = await kind.page(pageQuery(query))
      return kind.showPage(records, hasMore)
    },
    update: async (id, body) => kind.show(await kind.change(id, body)),
    delete: async (id) => {
      await kind.remove(id)
      return { id, object: kind.object, deleted: true }
    },
  }
}

function keyKind(
  keyring: Keyring,
  reports: UsageReports,
): RecordKind<VirtualKey, WireForm<KeyRecord>, WireForm<KeyPage>, WireForm<CreatedKey>> {
  const show = async (key: VirtualKey): Promise<WireForm<KeyRecord>> => {
    const [spent = 0] = await reports.spentCents([key])
    return publicKey(key, spent)
  }
  return {
    object: 'virtual_key',
    create: async (body) => {
      const { key, secret } = await keyring.create(parseNewKey(body))
      return { ...(await show(key)), value: secret }
    },
    read: keyring.read,
    change: (id, body) => keyring.update(id, parseKeyChange(body)),
    remove: keyring.remove,
    page: keyring.page,
    show,
    showPage: async (records, has_more) => {
      const spent = await reports.spentCents(records)
      return { keys: records.map((key, index) => listedKey(key, spent[index] ?? 0)), has_more }
    },
  }
}

function budgetKind(
  table: RecordTable<Budget>,
  reports: UsageReports,
  uuid: () => string,
): RecordKind<Budget, WireForm<BudgetRecord>, WireForm<BudgetPage>> {
  const show = async (budget: Budget): Promise<WireForm<BudgetRecord>> => {
    const [window] = await reports.budgetWindows([budget])
    return publicBudget(budget, window)
  }
  return {
    ...tableKind(table),
    object: 'budget',
    create: async (body) => show(await insert(table, parseBudget(body, uuid()), 'budget')),
    change: async (id, body) => {
      const change = parseBudgetChange(body)
      return (await table.change(id, (budget) => changeBudget(budget, change))).after
    },
    show,
    showPage: async (records, has_more) => {
      const windows = await reports.budgetWindows(records)
      return { budgets: records.map((budget, index) => publicBudget(budget, windows[index])), has_more }
    },
  }
}

function rateLimitKind(
  table: RecordTable<RateLimit>,
  uuid: () => string,
): RecordKind<RateLimit, WireForm<RateLimitRecord>, WireForm<RateLimitPage>> {
  return {
    ...tableKind(table),
    object: 'rate_limit',
    create: async (body) => publicRateLimit(await insert(table, parseRateLimit(body, uuid()), 'rate limit')),
    change: async (id, body) => {
      const change = parseRateLimitChange(body)
      return (await table.change(id, (rateLimit) => changeRateLimit(rateLimit, change))).after
    },
    show: async (rateLimit) => publicRateLimit(rateLimit),
    showPage: async (records, has_more) => ({ rate_limits: records.map(publicRateLimit), has_more }),
  }
}

function tableKind<record>(
  table: RecordTable<record>,
): Pick<RecordKind<record, never, never>, 'read' | 'remove' | 'page'> {
  return { read: table.read, remove: table.remove, page: table.page }
}

async function insert<record extends { readonly id: string }>(
  table: RecordTable<record>,
  record: record,
  label: string,
): Promise<record> {
  if (await table.insert(record.id, record)) return record
  throw new GatewayError(
    'conflict',
    `id: there is a ${label} with the id ${JSON.stringify(record.id)} already. Choose another id, or update that record.`,
    { param: 'id' },
  )
}

function publicBudget(
  { id, name, limit }: Budget,
  window: { readonly spentCents: number; readonly resetsAt: string } | undefined,
): WireForm<BudgetRecord> {
  return {
    id,
    object: 'budget',
    name,
    max_limit: limit.max / 1e9,
    reset_duration: limit.every,
    current_usage_cents: window?.spentCents ?? 0,
    resets_at: window?.resetsAt ?? '',
  }
}

function publicRateLimit({ id, name, requests, tokens }: RateLimit): WireForm<RateLimitRecord> {
  return {
    id,
    object: 'rate_limit',
    name,
    request_max_limit: requests?.max ?? UNLIMITED,
    request_reset_duration: requests?.every ?? null,
    token_max_limit: tokens?.max ?? UNLIMITED,
    token_reset_duration: tokens?.every ?? null,
  }
}
