import { sha256 } from '#hash'
import {
  checkFlag,
  checkOptions,
  expects,
  firstProblem,
  integerFrom,
  matching,
  numberFrom,
  type OptionCheck,
  unchecked,
} from '../../core/check-options.ts'
import { GatewayError } from '../../core/errors.ts'
import { fromWire, toWireName } from '../../core/field-names.ts'
import { DURATION_CODES } from '../../core/store.ts'
import {
  checkId,
  checkName,
  type Checks,
  choice,
  IGNORED,
  IGNORED_OF_CHANGE,
  list,
  nullOr,
  recordOf,
  type Spelling,
  text,
} from '../../governance/record-input.ts'
import { isTimestamp, TIMESTAMP_FORMAT } from '../../governance/timestamps.ts'
import { hashSecret, PLAN_NAMES, prefixOfSecret, UNLIMITED } from '../../governance/virtual-key.ts'
import type {
  BudgetChange,
  ConfiguredBudget,
  ConfiguredKey,
  ConfiguredRateLimit,
  KeyConfiguration,
  KeyProvider,
  KeySettings,
  NewBudget,
  NewKey,
  NewRateLimit,
  RateLimitChange,
} from './admin-api.ts'

/** $9,000,000 in cents. The largest safe integer of nano-dollars is about $9,007,199. */
const MAX_CENTS = 900_000_000
const MAX_COUNT = 1_000_000_000_000
const MAX_RECORDS = 100_000

function limitUpTo(max: number): OptionCheck {
  return expects(
    `an integer from 0 to ${max} (or null for no limit)`,
    (value) => value === UNLIMITED || (Number.isSafeInteger(value) && Number(value) >= 0 && Number(value) <= max),
  )
}

const checkDuration = choice(DURATION_CODES)
const checkModels = nullOr(list(checkName, 1_000))
const checkLimit = nullOr(limitUpTo(MAX_COUNT))
const checkMaxUsd = numberFrom(0, MAX_CENTS / 100, `a number of dollars from 0 to ${MAX_CENTS / 100}`)

export interface InputChecks {
  readonly newKey: OptionCheck
  readonly keyChange: OptionCheck
  readonly newBudget: OptionCheck
  readonly budgetChange: OptionCheck
  readonly newRateLimit: OptionCheck
  readonly rateLimitChange: OptionCheck
  readonly configuredKey: OptionCheck
  readonly configuredBudget: OptionCheck
  readonly configuredRateLimit: OptionCheck
}

/** Errors name the first invalid field in the order of these lists. */
export function createChecks(spelling: Spelling): InputChecks {
  const provider: Checks<KeyProvider> = {
    provider: matching(/^[\w.-]{1,100}$/, 'the name of a provider'),
    weight: numberFrom(0, 1_000_000),
    allowedModels: checkModels,
  }
  const settings: Checks<KeySettings> = {
    description: nullOr(text(0, 2_000)),
    budgetLimitCents: nullOr(limitUpTo(MAX_CENTS)),
    budgetResetDuration: nullOr(checkDuration),
    rateLimitRequests: checkLimit,
    rateLimitResetDuration: nullOr(checkDuration),
    rateLimitTokens: checkLimit,
    tokenResetDuration: nullOr(checkDuration),
    providerConfigs: nullOr(list(recordOf(spelling, provider, ['provider']), 100)),
    allowedModels: checkModels,
    maxTokens: nullOr(integerFrom(1, 1_000_000_000)),
    disableTools: nullOr(checkFlag),
    cacheSimilar: nullOr(checkFlag),
    plan: nullOr(choice(PLAN_NAMES)),
    customer: nullOr(checkId),
    trustsContext: nullOr(checkFlag),
    expiresAt: nullOr(expects(TIMESTAMP_FORMAT, isTimestamp)),
    budgetId: nullOr(checkId),
    rateLimitId: nullOr(checkId),
    isActive: checkFlag,
  }
  const newKey: Checks<NewKey> = {
    ...settings,
    name: checkName,
    keyFormat: choice(['sk-bf', 'sk-svc']),
    value: text(16, 512),
  }
  const configuredKey: Checks<ConfiguredKey> = {
    ...newKey,
    id: checkId,
    valueSha256: matching(/^[0-9a-fA-F]{64}$/, 'the SHA-256 of the secret as 64 hex digits'),
  }
  const budgetChange: Checks<BudgetChange> = {
    name: checkName,
    maxLimitUsd: checkMaxUsd,
    resetDuration: checkDuration,
  }
  const newBudget: Checks<NewBudget> = { ...budgetChange, id: checkId }
  const rateLimitChange: Checks<RateLimitChange> = {
    name: checkName,
    requestMaxLimit: checkLimit,
    requestResetDuration: nullOr(checkDuration),
    tokenMaxLimit: checkLimit,
    tokenResetDuration: nullOr(checkDuration),
  }
  const newRateLimit: Checks<NewRateLimit> = { ...rateLimitChange, id: checkId }
  return {
    newKey: recordOf(spelling, newKey, ['name'], IGNORED_OF_CHANGE),
    keyChange: recordOf(
      spelling,
      { ...settings, name: checkName, value: newKey.value },
      [],
      [...IGNORED_OF_CHANGE, 'keyFormat'],
    ),
    newBudget: recordOf(spelling, newBudget, ['maxLimitUsd'], [...IGNORED, 'resetsAt']),
    budgetChange: recordOf(spelling, budgetChange, [], [...IGNORED_OF_CHANGE, 'resetsAt']),
    newRateLimit: recordOf(spelling, newRateLimit, [], IGNORED),
    rateLimitChange: recordOf(spelling, rateLimitChange, [], IGNORED_OF_CHANGE),
    configuredKey: firstProblem(
      recordOf(spelling, configuredKey, ['name'], IGNORED),
      expects('either value or valueSha256', hasOneSecret),
    ),
    configuredBudget: recordOf(spelling, newBudget, ['id', 'maxLimitUsd'], [...IGNORED, 'resetsAt']),
    configuredRateLimit: recordOf(spelling, newRateLimit, ['id'], IGNORED),
  }
}

function hasOneSecret(key: unknown): boolean {
  const { value, valueSha256 } = fromWire(key) as Pick<ConfiguredKey, 'value' | 'valueSha256'>
  return (value === undefined) !== (valueSha256 === undefined)
}

/** Customers as they are configured, without checks: the plugin of customers has them. */
type Configuration<Customer> = KeyConfiguration & { readonly customers?: readonly Customer[] | undefined }

export interface ParsedConfiguration<Customer> {
  readonly customers: readonly Customer[]
  readonly keys: readonly HashedKey[]
  readonly budgets: readonly ConfiguredBudget[]
  readonly rateLimits: readonly ConfiguredRateLimit[]
}

export interface HashedKey {
  readonly id: string
  readonly hash: string
  readonly prefix: string
  readonly fields: NewKey
}

/** @param checkCustomer Accepts only records of the type. */
export function parseConfiguration<Customer extends { readonly id: string }>(
  value: unknown,
  checkCustomer: OptionCheck = unchecked,
): ParsedConfiguration<Customer> {
  const { configuredKey, configuredBudget, configuredRateLimit } = createChecks('both')
  const checks: Checks<Configuration<Customer>> = {
    virtualKeys: list(configuredKey, MAX_RECORDS),
    budgets: list(configuredBudget, MAX_RECORDS),
    rateLimits: list(configuredRateLimit, MAX_RECORDS),
    customers: list(checkCustomer, MAX_RECORDS),
  }
  checkOptions('createGateway', value, recordOf('both', checks, []), 'governance')
  const { virtualKeys = [], budgets = [], rateLimits = [], customers = [] } = fromWire(value) as Configuration<Customer>
  const keys = virtualKeys.map(toHashedKey)
  const listNames = Object.keys(Object(value))
  checkUnique(listNames, 'virtualKeys', keys, 'id')
  checkUnique(listNames, 'virtualKeys', keys, 'hash')
  checkUnique(listNames, 'budgets', budgets, 'id')
  checkUnique(listNames, 'rateLimits', rateLimits, 'id')
  checkUnique(listNames, 'customers', customers, 'id')
  return { keys, budgets, rateLimits, customers }
}

function toHashedKey({ id, value, valueSha256 = '', ...fields }: ConfiguredKey): HashedKey {
  const hash = value === undefined ? valueSha256.toLowerCase() : (hashSecret(value) ?? '')
  const derivedId = `cfg-${sha256(`id of ${hash}`).slice(0, 24)}`
  return { id: id ?? derivedId, hash, prefix: prefixOfSecret(value ?? ''), fields }
}

function checkUnique<Name extends string>(
  listNames: readonly string[],
  listName: string,
  records: readonly Readonly<Record<Name, string>>[],
  name: Name,
): void {
  const seen = new Set<string>()
  const duplicate = records.findIndex((record) => seen.size === seen.add(record[name]).size)
  if (duplicate === -1) return
  const label = name === 'hash' ? 'secret' : name
  const param = `governance.${listNames.includes(listName) ? listName : toWireName(listName)}[${duplicate}]`
  const problem = `an earlier entry has the same ${label}. Use unique values.`
  throw new GatewayError('invalid-request', `createGateway: ${param}: ${problem}`, { param })
}
