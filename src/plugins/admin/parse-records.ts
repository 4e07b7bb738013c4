import { toWireName } from '../../core/field-names.ts'
import { parserOf, type Spelling } from '../../governance/record-input.ts'
import type { BudgetChange, KeyChange, NewBudget, NewKey, NewRateLimit, RateLimitChange } from './admin-api.ts'
import { createChecks } from './admin-input.ts'
import { changeParserOf } from '../../governance/change-input.ts'

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
