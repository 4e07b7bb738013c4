import { expectedText, type OptionCheck } from '../../core/check-options.ts'
import { GatewayError } from '../../core/errors.ts'
import { fromWire, toWireName } from '../../core/field-names.ts'
import { isJsonObject } from '../../core/json.ts'
import { invalidFieldError } from '../../governance/page-query.ts'
import type { BudgetChange, KeyChange, NewBudget, NewKey, NewRateLimit, RateLimitChange } from './admin-api.ts'
import { createChecks, IGNORED_OF_CHANGE, MAX_NAME_LENGTH, type Spelling } from './admin-input.ts'

/** `value` must be the current secret of the key. */
export interface ParsedKeyChange extends KeyChange {
  readonly value?: string | undefined
}

/** Checks records, and returns them in camel case. */
export interface AdminInput {
  readonly parseNewKey: (input: unknown) => NewKey
  readonly parseKeyChange: (input: unknown) => ParsedKeyChange
  readonly parseNewBudget: (input: unknown) => NewBudget
  readonly parseBudgetChange: (input: unknown) => BudgetChange
  readonly parseNewRateLimit: (input: unknown) => NewRateLimit
  readonly parseRateLimitChange: (input: unknown) => RateLimitChange
}

export function createAdminInput(spelling: Spelling): AdminInput {
  const checks = createChecks(spelling)
  const spell = (example: string): string => (spelling === 'wire' ? example.replace(/\w+/g, toWireName) : example)
  return {
    parseNewKey: parserOf<NewKey>(checks.newKey, '{"name": "app"}'),
    parseKeyChange: changeParserOf<ParsedKeyChange>(checks.keyChange, spell('{"isActive": true}')),
    parseNewBudget: parserOf<NewBudget>(checks.newBudget, spell('{"id": "team", "maxLimitUsd": 50}')),
    parseBudgetChange: changeParserOf<BudgetChange>(checks.budgetChange, spell('{"maxLimitUsd": 50}')),
    parseNewRateLimit: parserOf<NewRateLimit>(checks.newRateLimit, spell('{"id": "fair", "requestMaxLimit": 100}')),
    parseRateLimitChange: changeParserOf<RateLimitChange>(checks.rateLimitChange, spell('{"requestMaxLimit": 100}')),
  }
}

/** @param check Accepts records of the type, in any accepted spelling. */
function parserOf<Parsed>(check: OptionCheck, example: string): (input: unknown) => Parsed {
  return (input) => {
    if (!isJsonObject(input)) {
      // The path hides strings, which may be secrets.
      const problem = expectedText(`an object, such as ${example}`, input, 'value')
      throw new GatewayError('invalid-admin-request', `The record is not valid: ${problem}`)
    }
    const problem = check(input, '')
    if (problem === undefined) return fromWire(input) as Parsed
    const path = problem.path.replace(/\[(\d+)\]/g, '.$1')
    throw invalidFieldError(path.slice(0, MAX_NAME_LENGTH), problem.text)
  }
}

const UNCHANGED_FIELDS: ReadonlySet<string> = new Set([...IGNORED_OF_CHANGE, 'keyFormat', 'resetsAt'])

function changeParserOf<Change extends object>(check: OptionCheck, example: string): (input: unknown) => Change {
  const parse = parserOf<Change>(check, example)
  return (input) => {
    const change = parse(input)
    if (Object.keys(change).some((field) => !UNCHANGED_FIELDS.has(field))) return change
    throw new GatewayError(
      'invalid-admin-request',
      `The record contains no field to change. Send at least one field, such as ${example}.`,
    )
  }
}
