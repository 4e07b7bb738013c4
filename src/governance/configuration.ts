import * as z from 'zod/mini'
import * as field from './field-schema.ts'
import type { ConfiguredBudget, ConfiguredKey, ConfiguredRateLimit, NewKey } from './admin-api.ts'
import type { WireForm } from '../core/field-names.ts'
import { configuredKey } from './key-schema.ts'
import { hashSecret, prefixOfSecret } from './secret.ts'
import { sha256 } from '#hash'
import { configuredBudget, configuredRateLimit, toBudget, toRateLimit } from './shared-schema.ts'
import type { Budget, RateLimit } from './virtual-key.ts'

/** Keys, budgets and rate limits that exist from the start, in the names of the HTTP API: at most 100,000 of each. */
export interface GovernanceConfiguration {
  readonly virtual_keys?: readonly WireForm<ConfiguredKey>[] | undefined
  readonly budgets?: readonly WireForm<ConfiguredBudget>[] | undefined
  readonly rate_limits?: readonly WireForm<ConfiguredRateLimit>[] | undefined
}

const MAX_RECORDS = 100_000

const configuration: z.ZodMiniType<GovernanceConfiguration> = field.record({
  virtual_keys: z.optional(field.list(configuredKey, MAX_RECORDS)),
  budgets: z.optional(field.list(configuredBudget, MAX_RECORDS)),
  rate_limits: z.optional(field.list(configuredRateLimit, MAX_RECORDS)),
})

/** A key of the configuration with what follows from its secret. */
export interface KeyInPlace {
  readonly id: string
  readonly hash: string
  readonly prefix: string
  readonly fields: WireForm<NewKey>
}

/** The configuration as records, checked: what the store must hold after the start. */
export interface Configured {
  readonly keys: readonly KeyInPlace[]
  readonly budgets: readonly Budget[]
  readonly rateLimits: readonly RateLimit[]
}

/** Reads `governance`; throws an error that names the path of the first wrong field. */
export function parseConfiguration(value: unknown): Configured {
  const given = field.parseOption(configuration, value)
  const keys = (given.virtual_keys ?? []).map(inPlace)
  const budgets = (given.budgets ?? []).map(toBudget)
  const rateLimits = (given.rate_limits ?? []).map(toRateLimit)
  refuseDoubles(
    'virtual_keys',
    keys.map((key) => key.id),
    'id',
  )
  refuseDoubles(
    'virtual_keys',
    keys.map((key) => key.hash),
    'secret',
  )
  refuseDoubles(
    'budgets',
    budgets.map((record) => record.id),
    'id',
  )
  refuseDoubles(
    'rate_limits',
    rateLimits.map((record) => record.id),
    'id',
  )
  return { keys, budgets, rateLimits }
}

function inPlace({ id, value, value_sha256, ...fields }: WireForm<ConfiguredKey>): KeyInPlace {
  const hash = value === undefined ? (value_sha256 ?? '').toLowerCase() : (hashSecret(value) ?? '')
  const derived = `cfg-${sha256(`id of ${hash}`).slice(0, 24)}`
  return { id: id ?? derived, hash, prefix: prefixOfSecret(value ?? ''), fields }
}

function refuseDoubles(list: string, values: readonly string[], what: string): void {
  const seen = new Set<string>()
  const second = values.findIndex((value) => seen.size === seen.add(value).size)
  if (second === -1) return
  throw field.wrongOption(`governance.${list}[${second}]`, `its ${what} is that of an earlier entry. Make them differ.`)
}
