/** Checks records in the spelling of the HTTP API, of JavaScript, or of both. */
import {
  expectedText,
  expects,
  fieldPath,
  firstProblem,
  listOf,
  matching,
  nearestName,
  type OptionCheck,
  unknownOptionText,
} from '../core/check-options.ts'
import { GatewayError } from '../core/errors.ts'
import { fromWire, toWireName } from '../core/field-names.ts'
import { isJsonObject } from '../core/json.ts'
import { invalidFieldError } from './page-query.ts'
import { SAFE_ID } from './record-table.ts'

export const MAX_NAME_LENGTH = 200

/** `wire`: the names of the HTTP API. `both`: camel case, or for each field the name of the HTTP API. */
export type Spelling = 'wire' | 'both'

export type Checks<Fields> = Readonly<Record<keyof Fields, OptionCheck>>

/** Clients send back records that they have read, so fields that clients cannot set are ignored. */
export const IGNORED: readonly string[] = ['object', 'hash', 'keyPrefix', 'createdAt', 'currentUsageCents', 'isAdmin']
export const IGNORED_OF_CHANGE: readonly string[] = [...IGNORED, 'id']

export function recordOf(
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

export function nullOr(check: OptionCheck): OptionCheck {
  return (value, path) => (value === null ? undefined : check(value, path))
}

export function text(min: number, max: number): OptionCheck {
  return expects(
    `a string of ${min} to ${max} characters`,
    (value) => typeof value === 'string' && value.length >= min && value.length <= max,
  )
}

export function choice(values: readonly unknown[]): OptionCheck {
  return expects(`one of ${values.join(', ')}`, (value) => values.includes(value))
}

export function list(check: OptionCheck, max: number): OptionCheck {
  return firstProblem(
    expects('a list', Array.isArray),
    expects(`at most ${max} entries`, (value) => Array.isArray(value) && value.length <= max),
    listOf('a list', check),
  )
}

export const checkName: OptionCheck = text(1, MAX_NAME_LENGTH)
export const checkId: OptionCheck = matching(
  SAFE_ID,
  'an id of 1 to 128 letters, digits, dots, hyphens and underscores, other than "." and ".."',
)
/** @param check Accepts records of the type, in any accepted spelling. */
export function parserOf<Parsed>(check: OptionCheck, example: string): (input: unknown) => Parsed {
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
