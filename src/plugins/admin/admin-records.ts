import type { MaybePromise } from '../../core/async.ts'
import { expectedText, GatewayError } from '../../core/errors.ts'
import type { WireForm } from '../../core/field-names.ts'
import { isJsonObject } from '../../core/json.ts'
import { fromDollars } from '../../core/money.ts'
import type { Runtime } from '../../core/ports.ts'
import type { Store } from '../../core/store.ts'
import {
  type BudgetChange,
  type BudgetPage,
  type BudgetRecord,
  type ConfiguredBudget,
  type ConfiguredRateLimit,
  type CreatedKey,
  type DeletedRecord,
  type KeyChange,
  type KeyPage,
  type KeyRecord,
  type NewBudget,
  type NewKey,
  type NewRateLimit,
  type RateLimitChange,
  type RateLimitPage,
  type RateLimitRecord,
} from './admin-api.ts'
import {
  parseBudgetChange,
  type ParsedConfiguration,
  parseKeyChange,
  parseNewBudget,
  parseNewKey,
  parseNewRateLimit,
  parseRateLimitChange,
} from './admin-input.ts'
import { changeAllowance, type Keyring, optionalField, toKeyRecord, toListedKey } from './keyring.ts'
import type { RecordTable, SharedLimits } from '../../governance/stored-records.ts'
import {
  type BudgetStatus,
  createUsageReports,
  type KeyLimits,
  type KeyRateLimit,
  type KeyUsage,
  type UsageReports,
} from './usage-report.ts'
import { UNLIMITED, type Budget, type RateLimit, type VirtualKey } from '../../governance/virtual-key.ts'
import { invalidFieldError, type PageOptions, parsePageQuery } from '../../governance/page-query.ts'

export { callInProcess } from '../../core/field-names.ts'
export { createKeyring } from './keyring.ts'

/**
 * Operations on one kind of record, with the same checks and effects as the HTTP admin API. Field names are in camel
 * case. The names of the HTTP API (`budget_limit_cents`) are also accepted.
 *
 * Rejects with a GatewayError, such as `invalid-admin-request` for an invalid field (its name is in `details.param`), or
 * `not-found` for an unknown id.
 */
export interface RecordMethods<NewRecord, Change, PublicRecord, RecordPage, CreatedRecord = PublicRecord> {
  create(fields: NewRecord | WireForm<NewRecord>): Promise<CreatedRecord>
  get(id: string): Promise<PublicRecord>
  /** Lists records in ascending order of id. */
  list(query?: PageOptions): Promise<RecordPage>
  /** Updates the fields in `change`. Absent fields keep their values. Resolves with the updated record. */
  update(id: string, change: Change | WireForm<Change>): Promise<PublicRecord>
  /**
   * A key that refers to a deleted budget or rate limit cannot call models until the key is changed, or a record with
   * the same id is created.
   */
  delete(id: string): Promise<DeletedRecord>
}

/**
 * Operations on virtual keys, as in `/api/governance/virtual-keys` but without HTTP. Usage and audit records of a
 * deleted key remain.
 */
export interface Keys extends RecordMethods<NewKey, KeyChange, KeyRecord, KeyPage, CreatedKey> {
  /** Resolves with the usage in the current window of the key's own budget, or in this month if it has none. */
  usage(id: string): Promise<KeyUsage>
  /**
   * Resolves with the limits and the remaining amounts of requests and tokens. Of several limits, reports the one with
   * the least remaining.
   */
  rateLimit(id: string): Promise<KeyRateLimit>
  /** Resolves with the remaining requests, tokens and money. Of several limits, reports the one with the least remaining. */
  limits(id: string): Promise<KeyLimits>
}

/** Operations on budgets that keys share by `budgetId`, as in `/api/governance/budgets` but without HTTP. */
export type Budgets = RecordMethods<NewBudget, BudgetChange, BudgetRecord, BudgetPage>

/** Operations on rate limits that keys share by `rateLimitId`, as in `/api/governance/rate-limits` but without HTTP. */
export type RateLimits = RecordMethods<NewRateLimit, RateLimitChange, RateLimitRecord, RateLimitPage>

export type WireRecords<PublicRecord, RecordPage, CreatedRecord = PublicRecord> = RecordMethods<
  unknown,
  unknown,
  PublicRecord,
  RecordPage,
  CreatedRecord
>

interface WireKeys extends WireRecords<WireForm<KeyRecord>, WireForm<KeyPage>, WireForm<CreatedKey>> {
  usage(id: string): Promise<WireForm<KeyUsage>>
  rateLimit(id: string): Promise<WireForm<KeyRateLimit>>
  limits(id: string): Promise<WireForm<KeyLimits>>
}

export interface AdminRecords {
  readonly keys: WireKeys
  readonly budgets: WireRecords<WireForm<BudgetRecord>, WireForm<BudgetPage>>
  readonly rateLimits: WireRecords<WireForm<RateLimitRecord>, WireForm<RateLimitPage>>
}

export function createAdminRecords(dependencies: {
  readonly store: Store
  readonly runtime: Pick<Runtime, 'now' | 'uuid'>
  readonly keyring: Keyring
  readonly shared: SharedLimits
}): AdminRecords {
  const { keyring, shared } = dependencies
  const { now, uuid } = dependencies.runtime
  const reports = createUsageReports({ store: dependencies.store, now, shared })
  return {
    keys: keyRecords(keyring, reports),
    budgets: sharedRecords(createBudgetKind(reports), { table: shared.budgets, uuid }),
    rateLimits: sharedRecords(RATE_LIMIT_KIND, { table: shared.rateLimits, uuid }),
  }
}

function keyRecords(keyring: Keyring, reports: UsageReports): WireKeys {
  const toPublic = async (key: VirtualKey): Promise<WireForm<KeyRecord>> => {
    const [spent = 0] = await reports.spentCents([key])
    return toKeyRecord(key, spent)
  }
  const read = async (id: string): Promise<VirtualKey> => keyring.read(checkId(id, 'virtual key'))
  return {
    create: async (body) => {
      const { key, secret } = await keyring.create(parseNewKey(body))
      return { ...(await toPublic(key)), value: secret }
    },
    get: async (id) => toPublic(await read(id)),
    list: async (query = {}) => {
      const { records, hasMore } = await keyring.page(parsePageQuery(query))
      const spent = await reports.spentCents(records)
      return { keys: records.map((key, index) => toListedKey(key, spent[index] ?? 0)), has_more: hasMore }
    },
    update: async (id, body) => toPublic(await keyring.update(checkId(id, 'virtual key'), parseKeyChange(body))),
    delete: async (id) => {
      checkId(id, 'virtual key')
      await keyring.remove(id)
      return { id, object: 'virtual_key', deleted: true }
    },
    usage: async (id) => reports.usage(await read(id)),
    rateLimit: async (id) => reports.rateLimit(await read(id)),
    limits: async (id) => reports.limits(await read(id)),
  }
}

function checkId(id: unknown, noun: string): string {
  if (typeof id === 'string') return id
  throw invalidFieldError('id', expectedText(`the id of a ${noun} as a string`, id, 'id'))
}

interface SharedKind<T, PublicRecord, RecordPage> {
  readonly object: DeletedRecord['object']
  parseNew(body: unknown): T
  parseUpdate(body: unknown): (record: T) => T
  /** Loads the usage of all `records` at once, if the kind has any. */
  createPresenter(records: readonly T[]): MaybePromise<(record: T) => PublicRecord>
  toPage(records: readonly PublicRecord[], hasMore: boolean): RecordPage
}

function sharedRecords<T extends { readonly id: string }, PublicRecord, RecordPage>(
  kind: SharedKind<T, PublicRecord, RecordPage>,
  { table, uuid }: { readonly table: RecordTable<T>; readonly uuid: () => string },
): WireRecords<PublicRecord, RecordPage> {
  const label = kind.object.replace('_', ' ')
  const toPublic = async (record: T): Promise<PublicRecord> => (await kind.createPresenter([record]))(record)
  return {
    create: async (body) => {
      const record = kind.parseNew(isJsonObject(body) ? { id: uuid(), ...body } : body)
      if (await table.insert(record.id, record)) return toPublic(record)
      throw new GatewayError(
        'conflict',
        `id: a ${label} with the id ${JSON.stringify(record.id)} already exists. Choose another id, or update the existing record.`,
        { param: 'id' },
      )
    },
    get: async (id) => toPublic(await table.read(checkId(id, label))),
    list: async (query = {}) => {
      const { records, hasMore } = await table.page(parsePageQuery(query))
      return kind.toPage(records.map(await kind.createPresenter(records)), hasMore)
    },
    update: async (id, body) => toPublic((await table.change(checkId(id, label), kind.parseUpdate(body))).after),
    delete: async (id) => {
      await table.remove(checkId(id, label))
      return { id, object: kind.object, deleted: true }
    },
  }
}

function createBudgetKind(reports: UsageReports): SharedKind<Budget, WireForm<BudgetRecord>, WireForm<BudgetPage>> {
  return {
    object: 'budget',
    parseNew: (body) => toBudget(parseNewBudget(body)),
    parseUpdate: (body) => {
      const change = parseBudgetChange(body)
      return ({ id, name, limit }) => ({
        id,
        name: change.name ?? name,
        limit: {
          max: change.max_limit === undefined ? limit.max : fromDollars(change.max_limit),
          every: change.reset_duration ?? limit.every,
        },
      })
    },
    createPresenter: async (budgets) => {
      const statuses = await reports.budgetStatuses(budgets)
      return (budget) => toBudgetRecord(budget, statuses.get(budget.id))
    },
    toPage: (budgets, has_more) => ({ budgets, has_more }),
  }
}

function toBudgetRecord({ id, name, limit }: Budget, status: BudgetStatus | undefined): WireForm<BudgetRecord> {
  return {
    id,
    object: 'budget',
    name,
    max_limit: limit.max / 1e9,
    reset_duration: limit.every,
    current_usage_cents: status?.spentCents ?? 0,
    resets_at: status?.resetsAt ?? '',
  }
}

const RATE_LIMIT_KIND: SharedKind<RateLimit, WireForm<RateLimitRecord>, WireForm<RateLimitPage>> = {
  object: 'rate_limit',
  parseNew: (body) => toRateLimit(parseNewRateLimit(body)),
  parseUpdate: (body) => {
    const change = parseRateLimitChange(body)
    return (rateLimit) => changeRateLimit(rateLimit, change)
  },
  createPresenter:
    () =>
    ({ id, name, requests, tokens }) => ({
      id,
      object: 'rate_limit',
      name,
      request_max_limit: requests?.max ?? UNLIMITED,
      request_reset_duration: requests?.every ?? null,
      token_max_limit: tokens?.max ?? UNLIMITED,
      token_reset_duration: tokens?.every ?? null,
    }),
  toPage: (rate_limits, has_more) => ({ rate_limits, has_more }),
}

function toBudget({ id, name = id, max_limit, reset_duration = '1M' }: WireForm<ConfiguredBudget>): Budget {
  return { id, name, limit: { max: fromDollars(max_limit), every: reset_duration } }
}

function toRateLimit(fields: WireForm<ConfiguredRateLimit>): RateLimit {
  return changeRateLimit({ id: fields.id, name: fields.id }, fields)
}

function changeRateLimit(rateLimit: RateLimit, change: WireForm<RateLimitChange>): RateLimit {
  const requests = changeAllowance(rateLimit.requests, {
    max: change.request_max_limit,
    every: change.request_reset_duration,
  })
  const tokens = changeAllowance(rateLimit.tokens, { max: change.token_max_limit, every: change.token_reset_duration })
  return {
    id: rateLimit.id,
    name: change.name ?? rateLimit.name,
    ...optionalField('requests', requests),
    ...optionalField('tokens', tokens),
  }
}

/** Configuration overrides stored records. A disabled key stays disabled unless the configuration sets `is_active`. */
export async function applyConfiguration(
  configured: ParsedConfiguration,
  tables: { readonly keyring: Keyring; readonly shared: SharedLimits },
): Promise<void> {
  for (const fields of configured.budgets) await insertOrReplace(tables.shared.budgets, toBudget(fields))
  for (const fields of configured.rateLimits) await insertOrReplace(tables.shared.rateLimits, toRateLimit(fields))
  for (const key of configured.keys) await tables.keyring.configure(key)
}

async function insertOrReplace<T extends { readonly id: string }>(table: RecordTable<T>, record: T): Promise<void> {
  if (!(await table.insert(record.id, record))) await table.change(record.id, () => record)
}
