import type { OptionCheck } from '../core/check-options.ts'
import { GatewayError } from '../core/errors.ts'
import { IGNORED_OF_CHANGE, parserOf } from './record-input.ts'

const UNCHANGED_FIELDS: ReadonlySet<string> = new Set([...IGNORED_OF_CHANGE, 'keyFormat', 'resetsAt', 'raises'])

export function changeParserOf<Change extends object>(check: OptionCheck, example: string): (input: unknown) => Change {
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
