import type { MaybePromise } from '../../core/async.ts'
import { expectedText } from '../../core/check-options.ts'
import { GatewayError } from '../../core/errors.ts'
import type { WireForm } from '../../core/field-names.ts'
import { fromDollars } from '../../core/money.ts'
import type { Runtime } from '../../core/ports.ts'
import type { Store } from '../../core/store.ts'
import {
  type BudgetChange,
  type BudgetPage,
  type BudgetRecord,
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
import type { ParsedConfiguration } from './admin-input.ts'
import { createAdminInput, type ParsedKeyChange } from './parse-records.ts'
import { changeAllowance, type Keyring, optionalField, toKeyRecord, toListedKey } from './keyring.ts'
import type { RecordTable } from '../../governance/record-table.ts'
import type { SharedLimits } from '../../governance/stored-records.ts'
import {
  type BudgetStatus,
  createUsageReports,
  type KeyLimits,
  type KeyRateLimit,
  type KeyUsage,
  type UsageReports,
} from './usage-report.ts'
import { UNLIMITED, type Budget, type RateLimit, type VirtualKey } from '../../governance/virtual-key.ts'
import { invalidFieldError, type PageOptions } from '../../governance/page-query.ts'
import { parsePageQuery } from '../../governance/parse-page-query.ts'

export { createKeyring } from './keyring.ts'

/**
 * Operations on one kind of record, with the same checks and effects as the HTTP admin API. Field names are in camel
 * case. The name of a field in the HTTP API (`budget_limit_cents`) is also accepted, but not both of them.
 *
 * Rejects with a GatewayError, such as `invalid-admin-request` for an invalid field (its name is in `details.param`), or
 * `not-found` for an unknown id.
 */
export interface RecordMethods<NewRecord, Change, PublicRecord, RecordPage, CreatedRecord = PublicRecord> {
  create(fields: NewRecord): Promise<CreatedRecord>
  get(id: string): Promise<PublicRecord>
  /** Lists records in ascending order of id. */
  list(query?: PageOptions): Promise<RecordPage>
  /** Updates the fields in `change`. Absent fields keep their values. Resolves with the updated record. */
  update(id: string, change: Change): Promise<PublicRecord>
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
export interface Keys extends RecordMethods<
  NewKey | WireForm<NewKey>,
  KeyChange | WireForm<KeyChange>,
  KeyRecord,
  KeyPage,
  CreatedKey
> {
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
export type Budgets = RecordMethods<
  NewBudget | WireForm<NewBudget>,
  BudgetChange | WireForm<BudgetChange>,
  BudgetRecord,
  BudgetPage
>

/** Operations on rate limits that keys share by `rateLimitId`, as in `/api/governance/rate-limits` but without HTTP. */
export type RateLimits = RecordMethods<
  NewRateLimit | WireForm<NewRateLimit>,
  RateLimitChange | WireForm<RateLimitChange>,
  RateLimitRecord,
  RateLimitPage
>

type KeyRecords = Omit<Keys, 'create' | 'update'> &
  RecordMethods<NewKey, ParsedKeyChange, KeyRecord, KeyPage, CreatedKey>

/** Takes records that were checked. */
export interface AdminRecords {
  readonly keys: KeyRecords
  readonly budgets: RecordMethods<NewBudget, BudgetChange, BudgetRecord, BudgetPage>
  readonly rateLimits: RecordMethods<NewRateLimit, RateLimitChange, RateLimitRecord, RateLimitPage>
}

/** The methods of a gateway, which check their arguments. */
export interface InProcessRecords {
  readonly keys: Keys
  readonly budgets: Budgets
  readonly rateLimits: RateLimits
}

export function inProcessRecords({ keys, budgets, rateLimits }: AdminRecords): InProcessRecords {
  const input = createAdminInput('both')
  return {
    keys: {
      ...keys,
      create: async (fields) => keys.create(input.parseNewKey(fields)),
      update: async (id, change) => keys.update(id, input.parseKeyChange(change)),
    },
    budgets: {
      ...budgets,
      create: async (fields) => budgets.create(input.parseNewBudget(fields)),
      update: async (id, change) => budgets.update(id, input.parseBudgetChange(change)),
    },
    rateLimits: {
      ...rateLimits,
      create: async (fields) => rateLimits.create(input.parseNewRateLimit(fields)),
      update: async (id, change) => rateLimits.update(id, input.parseRateLimitChange(change)),
    },
  }
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

function keyRecords(keyring: Keyring, reports: UsageReports): KeyRecords {
  const toPublic = async (key: VirtualKey): Promise<KeyRecord> => {
    const [spent = 0] = await reports.spentCents([key])
    return toKeyRecord(key, spent)
  }
  const read = async (id: string): Promise<VirtualKey> => keyring.read(checkId(id, 'virtual key'))
  return {
    create: async (fields) => {
      const { key, secret } = await keyring.create(fields)
      return { ...(await toPublic(key)), value: secret }
    },
    get: async (id) => toPublic(await read(id)),
    list: async (query = {}) => {
      const { records, hasMore } = await keyring.page(parsePageQuery(query))
      const spent = await reports.spentCents(records)
      return { keys: records.map((key, index) => toListedKey(key, spent[index] ?? 0)), hasMore }
    },
    update: async (id, change) => toPublic(await keyring.update(checkId(id, 'virtual key'), change)),
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

interface SharedKind<T, NewRecord, Change, PublicRecord, RecordPage> {
  readonly object: DeletedRecord['object']
  create(id: string, fields: NewRecord): T
  change(record: T, change: Change): T
  /** Loads the usage of all `records` at once, if the kind has any. */
  createPresenter(records: readonly T[]): MaybePromise<(record: T) => PublicRecord>
  toPage(records: readonly PublicRecord[], hasMore: boolean): RecordPage
}

function sharedRecords<
  T extends { readonly id: string },
  NewRecord extends { readonly id?: string | undefined },
  Change,
  PublicRecord,
  RecordPage,
>(
  kind: SharedKind<T, NewRecord, Change, PublicRecord, RecordPage>,
  { table, uuid }: { readonly table: RecordTable<T>; readonly uuid: () => string },
): RecordMethods<NewRecord, Change, PublicRecord, RecordPage> {
  const label = kind.object.replace('_', ' ')
  const toPublic = async (record: T): Promise<PublicRecord> => (await kind.createPresenter([record]))(record)
  return {
    create: async (fields) => {
      const record = kind.create(fields.id ?? uuid(), fields)
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
    update: async (id, change) =>
      toPublic((await table.change(checkId(id, label), (record) => kind.change(record, change))).after),
    delete: async (id) => {
      await table.remove(checkId(id, label))
      return { id, object: kind.object, deleted: true }
    },
  }
}

function createBudgetKind(
  reports: UsageReports,
): SharedKind<Budget, NewBudget, BudgetChange, BudgetRecord, BudgetPage> {
  return {
    object: 'budget',
    create: toBudget,
    change: ({ id, name, limit }, change) => ({
      id,
      name: change.name ?? name,
      limit: {
        max: change.maxLimitUsd === undefined ? limit.max : fromDollars(change.maxLimitUsd),
        every: change.resetDuration ?? limit.every,
      },
    }),
    createPresenter: async (budgets) => {
      const statuses = await reports.budgetStatuses(budgets)
      return (budget) => toBudgetRecord(budget, statuses.get(budget.id))
    },
    toPage: (budgets, hasMore) => ({ budgets, hasMore }),
  }
}

function toBudgetRecord({ id, name, limit }: Budget, status: BudgetStatus | undefined): BudgetRecord {
  return {
    id,
    object: 'budget',
    name,
    maxLimitUsd: limit.max / 1e9,
    resetDuration: limit.every,
    currentUsageCents: status?.spentCents ?? 0,
    resetsAt: status?.resetsAt ?? '',
  }
}

const RATE_LIMIT_KIND: SharedKind<RateLimit, NewRateLimit, RateLimitChange, RateLimitRecord, RateLimitPage> = {
  object: 'rate_limit',
  create: toRateLimit,
  change: changeRateLimit,
  createPresenter:
    () =>
    ({ id, name, requests, tokens }) => ({
      id,
      object: 'rate_limit',
      name,
      requestMaxLimit: requests?.max ?? UNLIMITED,
      requestResetDuration: requests?.every ?? null,
      tokenMaxLimit: tokens?.max ?? UNLIMITED,
      tokenResetDuration: tokens?.every ?? null,
    }),
  toPage: (rateLimits, hasMore) => ({ rateLimits, hasMore }),
}

function toBudget(id: string, { name = id, maxLimitUsd, resetDuration = '1M' }: NewBudget): Budget {
  return { id, name, limit: { max: fromDollars(maxLimitUsd), every: resetDuration } }
}

function toRateLimit(id: string, fields: NewRateLimit): RateLimit {
  return changeRateLimit({ id, name: id }, fields)
}

function changeRateLimit(rateLimit: RateLimit, change: RateLimitChange): RateLimit {
  const requests = changeAllowance(rateLimit.requests, {
    max: change.requestMaxLimit,
    every: change.requestResetDuration,
  })
  const tokens = changeAllowance(rateLimit.tokens, { max: change.tokenMaxLimit, every: change.tokenResetDuration })
  return {
    id: rateLimit.id,
    name: change.name ?? rateLimit.name,
    ...optionalField('requests', requests),
    ...optionalField('tokens', tokens),
  }
}

/** Configuration overrides stored records. A disabled key stays disabled unless the configuration sets `isActive`. */
export async function applyConfiguration(
  configured: Omit<ParsedConfiguration<unknown>, 'customers'>,
  tables: { readonly keyring: Keyring; readonly shared: SharedLimits },
): Promise<void> {
  for (const fields of configured.budgets) await insertOrReplace(tables.shared.budgets, toBudget(fields.id, fields))
  for (const fields of configured.rateLimits)
    await insertOrReplace(tables.shared.rateLimits, toRateLimit(fields.id, fields))
  for (const key of configured.keys) await tables.keyring.configure(key)
}

async function insertOrReplace<T extends { readonly id: string }>(table: RecordTable<T>, record: T): Promise<void> {
  if (!(await table.insert(record.id, record))) await table.change(record.id, () => record)
}
