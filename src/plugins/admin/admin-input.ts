import { sha256 } from '#hash'
import {
  checkFlag,
  checkOptions,
  expectedText,
  expects,
  fieldPath,
  firstProblem,
  integerFrom,
  listOf,
  matching,
  nearestName,
  numberFrom,
  type OptionCheck,
  unknownOptionText,
} from '../../core/check-options.ts'
import { GatewayError } from '../../core/errors.ts'
import { fromWire, toWireName } from '../../core/field-names.ts'
import { isJsonObject } from '../../core/json.ts'
import { DURATION_CODES } from '../../core/store.ts'
import { SAFE_ID } from '../../governance/record-table.ts'
import { isTimestamp, TIMESTAMP_FORMAT } from '../../governance/timestamps.ts'
import { hashSecret, PLAN_NAMES, prefixOfSecret, UNLIMITED } from '../../governance/virtual-key.ts'
import type {
  BudgetChange,
  ConfiguredBudget,
  ConfiguredKey,
  ConfiguredRateLimit,
  GovernanceConfiguration,
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
export const MAX_NAME_LENGTH = 200
const MAX_RECORDS = 100_000

/** `wire`: the names of the HTTP API. `both`: camel case, or for each field the name of the HTTP API. */
export type Spelling = 'wire' | 'both'

type Checks<Fields> = Readonly<Record<keyof Fields, OptionCheck>>

/** Clients send back records that they have read, so fields that clients cannot set are ignored. */
const IGNORED = ['object', 'hash', 'keyPrefix', 'createdAt', 'currentUsageCents', 'isAdmin']
export const IGNORED_OF_CHANGE: readonly string[] = [...IGNORED, 'id']

function recordOf(
  spelling: Spelling,
  checks: Readonly<Record<string, OptionCheck>>,
  required: readonly string[],
  ignored: readonly string[] = [],
): OptionCheck {
  const spellings = (name: string): readonly string[] =>
    spelling === 'wire' ? [toWireName(name)] : [...new Set([name, toWireName(name)])]
  const fields = Object.keys(checks)
  const names = fields.flatMap(spellings)
  const accepted = new Set([...names, ...ignored.flatMap(spellings)])
  return (value, path) => {
    if (!isJsonObject(value)) return { path, text: expectedText('a JSON object', value, path) }
    const inherited = names.find((name) => value[name] !== undefined && !isOwnField(value, name))
    if (inherited !== undefined)
      return { path: fieldPath(path, inherited), text: 'the field is inherited. Pass a plain object.' }
    for (const [field, check] of Object.entries(checks)) {
      const [first = '', second] = spellings(field)
      const used = second !== undefined && value[second] !== undefined ? second : first
      const name = fieldPath(path, used)
      if (used === second && value[first] !== undefined)
        return { path: fieldPath(path, first), text: `${second} is the same field. Set only one of them.` }
      const problem = value[used] === undefined && !required.includes(field) ? undefined : check(value[used], name)
      if (problem !== undefined) return problem
    }
    const unknown = Object.keys(value).find((name) => !accepted.has(name))
    if (unknown === undefined) return undefined
    const isMisspelled = spelling === 'wire' || nearestName(unknown, names) !== undefined
    return { path: fieldPath(path, unknown), text: unknownOptionText(unknown, isMisspelled ? names : fields, 'field') }
  }
}

/** False for a getter of a class, which would be checked but not copied. */
function isOwnField(record: object, name: string): boolean {
  return Object.prototype.propertyIsEnumerable.call(record, name)
}

function nullOr(check: OptionCheck): OptionCheck {
  return (value, path) => (value === null ? undefined : check(value, path))
}

function text(min: number, max: number): OptionCheck {
  return expects(
    `a string of ${min} to ${max} characters`,
    (value) => typeof value === 'string' && value.length >= min && value.length <= max,
  )
}

function choice(values: readonly unknown[]): OptionCheck {
  return expects(`one of ${values.join(', ')}`, (value) => values.includes(value))
}

function limitUpTo(max: number): OptionCheck {
  return expects(
    `an integer from 0 to ${max} (or null for no limit)`,
    (value) => value === UNLIMITED || (Number.isSafeInteger(value) && Number(value) >= 0 && Number(value) <= max),
  )
}

function list(check: OptionCheck, max: number): OptionCheck {
  return firstProblem(
    expects('a list', Array.isArray),
    expects(`at most ${max} entries`, (value) => Array.isArray(value) && value.length <= max),
    listOf('a list', check),
  )
}

const checkName = text(1, MAX_NAME_LENGTH)
const checkId = matching(
  SAFE_ID,
  'an id of 1 to 128 letters, digits, dots, hyphens and underscores, other than "." and ".."',
)
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
  readonly configuration: OptionCheck
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
  const configuration: Checks<GovernanceConfiguration> = {
    virtualKeys: list(
      firstProblem(
        recordOf(spelling, configuredKey, ['name'], IGNORED),
        expects('either value or valueSha256', hasOneSecret),
      ),
      MAX_RECORDS,
    ),
    budgets: list(recordOf(spelling, newBudget, ['id', 'maxLimitUsd'], [...IGNORED, 'resetsAt']), MAX_RECORDS),
    rateLimits: list(recordOf(spelling, newRateLimit, ['id'], IGNORED), MAX_RECORDS),
  }
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
    configuration: recordOf(spelling, configuration, []),
  }
}

function hasOneSecret(key: unknown): boolean {
  const { value, valueSha256 } = fromWire(key) as Pick<ConfiguredKey, 'value' | 'valueSha256'>
  return (value === undefined) !== (valueSha256 === undefined)
}

export interface ParsedConfiguration {
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

export function parseConfiguration(value: unknown): ParsedConfiguration {
  checkOptions('createGateway', value, createChecks('both').configuration, 'governance')
  const { virtualKeys = [], budgets = [], rateLimits = [] } = fromWire(value) as GovernanceConfiguration
  const keys = virtualKeys.map(toHashedKey)
  const listNames = Object.keys(Object(value))
  checkUnique(listNames, 'virtualKeys', keys, 'id')
  checkUnique(listNames, 'virtualKeys', keys, 'hash')
  checkUnique(listNames, 'budgets', budgets, 'id')
  checkUnique(listNames, 'rateLimits', rateLimits, 'id')
  return { keys, budgets, rateLimits }
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
