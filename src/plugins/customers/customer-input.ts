/** Checks customers in the configuration at startup, and those of the admin API. */
import {
  checkFlag,
  expects,
  firstProblem,
  nearestName,
  numberFrom,
  oneOf,
  type OptionCheck,
} from '../../core/check-options.ts'
import { isJsonObject } from '../../core/json.ts'
import {
  checkId,
  checkName,
  type Checks,
  IGNORED,
  IGNORED_OF_CHANGE,
  list,
  nullOr,
  recordOf,
  type Spelling,
} from '../../governance/record-input.ts'
import { isTimestamp, TIMESTAMP_FORMAT } from '../../governance/timestamps.ts'
import type { CustomerSettings, NewCustomer, NewRaise } from './customer-api.ts'
import { BUDGET_FIELDS, checkHasRate, limitsOf, PERMISSION_FIELDS, RATE_FIELDS } from './options.ts'

const MAX_METADATA = 16

const checkMetadata = expects(
  `an object of at most ${MAX_METADATA} names of 1 to 64 characters and strings of up to 500 characters`,
  (value) => {
    if (!isJsonObject(value)) return false
    const entries = Object.entries(value)
    return (
      entries.length <= MAX_METADATA &&
      entries.every(
        ([name, text]) => name.length >= 1 && name.length <= 64 && typeof text === 'string' && text.length <= 500,
      )
    )
  },
)

const checkTime = expects(TIMESTAMP_FORMAT, isTimestamp)

export interface CustomerChecks {
  readonly newCustomer: OptionCheck
  readonly change: OptionCheck
  readonly raise: OptionCheck
  readonly configured: OptionCheck
}

/** @param plans The names of the configured plans. */
export function createCustomerChecks(spelling: Spelling, plans: readonly string[]): CustomerChecks {
  const models = list(checkName, 100)
  const budget = recordOf(spelling, { ...BUDGET_FIELDS, models }, ['limitUsd', 'window'])
  const rateLimit = firstProblem(recordOf(spelling, { ...RATE_FIELDS, models }, ['window']), checkHasRate)
  const settings: Checks<CustomerSettings> & Checks<Pick<NewCustomer, 'name'>> = {
    name: checkName,
    parentId: nullOr(checkId),
    plan: nullOr(planAmong(plans)),
    metadata: nullOr(checkMetadata),
    budgets: nullOr(limitsOf(budget)),
    rateLimits: nullOr(limitsOf(rateLimit)),
    permissions: nullOr(recordOf(spelling, { ...PERMISSION_FIELDS, allowedModels: list(checkName, 1_000) }, [])),
    payer: nullOr(oneOf('operator', 'customer')),
    isActive: checkFlag,
    expiresAt: nullOr(checkTime),
  }
  const newCustomer: Checks<NewCustomer> = { ...settings, id: checkId }
  const raise: Checks<NewRaise> = {
    addUsd: firstProblem(
      expects('a number of dollars above 0', (value) => typeof value === 'number' && value > 0),
      numberFrom(0, 9_000_000),
    ),
    window: BUDGET_FIELDS.window,
    until: checkTime,
  }
  return {
    newCustomer: recordOf(spelling, newCustomer, [], [...IGNORED, 'raises']),
    change: recordOf(spelling, settings, [], [...IGNORED_OF_CHANGE, 'raises']),
    raise: recordOf(spelling, raise, ['addUsd', 'window', 'until']),
    configured: recordOf(spelling, newCustomer, ['id'], [...IGNORED, 'raises']),
  }
}

function planAmong(plans: readonly string[]): OptionCheck {
  const check = expects(
    `the name of one of the plans (${plans.join(', ').slice(0, 1_000) || 'none is configured'})`,
    (value) => typeof value === 'string' && plans.includes(value),
  )
  return (value, path) => {
    const problem = check(value, path)
    const nearest = typeof value === 'string' ? nearestName(value.slice(0, 200), plans) : undefined
    return problem === undefined || nearest === undefined
      ? problem
      : { path, text: `${problem.text} Did you mean ${nearest}?` }
  }
}
