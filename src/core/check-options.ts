import { GatewayError } from './errors.ts'
import { isJsonObject } from './json.ts'

export interface OptionProblem {
  readonly path: string
  readonly text: string
}

export type OptionCheck = (value: unknown, path: string) => OptionProblem | undefined

/** @param path Where the options are in those of the function. */
export function checkOptions(functionName: string, options: unknown, check: OptionCheck, path = ''): void {
  const problem = check(options, path)
  if (problem === undefined) return
  const { path: param, text } = problem
  const prefix = param === '' ? '' : `${param}: `
  throw new GatewayError('invalid-request', `${functionName}: ${prefix}${text}`, { param })
}

export function expects(expected: string, accepts: (value: unknown) => boolean): OptionCheck {
  return (value, path) => (accepts(value) ? undefined : { path, text: expectedText(expected, value, path) })
}

export function optionsOf(
  checks: Readonly<Record<string, OptionCheck>>,
  required: readonly string[] = [],
  expected = 'an object with options',
  noun: 'option' | 'field' = 'option',
): OptionCheck {
  return firstProblem(
    (value, path) => {
      const unknown = isJsonObject(value) && Object.keys(value).find((name) => !Object.hasOwn(checks, name))
      if (typeof unknown !== 'string') return undefined
      return { path: fieldPath(path, unknown), text: unknownOptionText(unknown, Object.keys(checks), noun) }
    },
    fieldsOf(checks, required, expected),
  )
}

/** Ignores other fields. */
export function fieldsOf(
  checks: Readonly<Record<string, OptionCheck>>,
  required: readonly string[],
  expected: string,
): OptionCheck {
  return (value, path) => {
    if (!isJsonObject(value)) return { path, text: expectedText(expected, value, path) }
    for (const [name, check] of Object.entries(checks)) {
      const field = value[name]
      const problem = field === undefined && !required.includes(name) ? undefined : check(field, fieldPath(path, name))
      if (problem !== undefined) return problem
    }
    return undefined
  }
}

export function fieldPath(path: string, name: string): string {
  return path === '' ? name : `${path}.${name}`
}

export function firstProblem(...checks: readonly OptionCheck[]): OptionCheck {
  return (value, path) => {
    for (const check of checks) {
      const problem = check(value, path)
      if (problem !== undefined) return problem
    }
    return undefined
  }
}

export function listOf(expected: string, check: OptionCheck, min = 0): OptionCheck {
  return (value, path) => {
    if (!Array.isArray(value) || value.length < min) return { path, text: expectedText(expected, value, path) }
    for (const [index, element] of value.entries()) {
      const problem = check(element, `${path}[${index}]`)
      if (problem !== undefined) return problem
    }
    return undefined
  }
}

/** For options that `false` switches off. */
export function falseOr(check: OptionCheck): OptionCheck {
  return (value, path) => {
    if (value === false) return undefined
    const problem = check(value, path)
    return problem?.path === path ? { path, text: problem.text.replace('expected', 'expected false or') } : problem
  }
}

export const checkFlag: OptionCheck = oneOf(true, false)

export function integerFrom(min: number, max: number = Number.MAX_SAFE_INTEGER, unit?: string): OptionCheck {
  const range = max === Number.MAX_SAFE_INTEGER ? `of at least ${min}` : `from ${min} to ${max}`
  const suffix = unit === undefined ? '' : ` ${unit}`
  return expects(`an integer ${range}${suffix}`, (value) => Number.isSafeInteger(value) && isWithin(value, min, max))
}

/** @param suggest Returns the likely intention of a number above `max`. @default a percentage, if `max` is 1 */
export function numberFrom(
  min: number,
  max: number,
  expected = `a number from ${min} to ${max}`,
  suggest: (value: number) => number = max === 1 ? toShare : Number,
): OptionCheck {
  return (value, path) => {
    if (isWithin(value, min, max)) return undefined
    const suggestion = typeof value === 'number' && value > max ? suggest(value) : undefined
    const hint = isWithin(suggestion, min, max) ? ` Did you mean ${suggestion}?` : ''
    return { path, text: expectedText(expected, value, path) + hint }
  }
}

function toShare(percent: number): number {
  return percent / 100
}

export function oneOf(...values: readonly unknown[]): OptionCheck {
  return expects(values.map((value) => describeValue(value, '')).join(' or '), (value) => values.includes(value))
}

/** @param noun What the pattern describes, such as `a region such as us-east-1`. */
export function matching(pattern: RegExp, noun: string): OptionCheck {
  return expects(noun, (value) => typeof value === 'string' && pattern.test(value))
}

export const checkDate: OptionCheck = expects('a date, YYYY-MM-DD', isDate)

export function isDate(value: unknown): boolean {
  if (typeof value !== 'string' || !/^\d{4}-\d\d-\d\d$/.test(value)) return false
  const time = Date.parse(value)
  // Some platforms read February 30 as March 2.
  return !Number.isNaN(time) && new Date(time).toISOString().startsWith(value)
}

export function functionCheck(signature: string): OptionCheck {
  return expects(`a function ${signature}`, (value) => typeof value === 'function')
}

export function objectWith(expected: string, names: readonly string[]): OptionCheck {
  return expects(expected, (value) => isJsonObject(value) && names.every((name) => name in value))
}

/** For options that are checked elsewhere. */
export const unchecked: OptionCheck = () => undefined

export function unknownOptionText(name: string, names: readonly string[], noun: 'option' | 'field' = 'option'): string {
  const nearest = nearestName(name, names)
  const hint = nearest === undefined ? `The ${noun}s are ${names.join(', ')}.` : `Did you mean ${nearest}?`
  return `there is no such ${noun}. ${hint}`
}

export function expectedText(expected: string, value: unknown, path: string): string {
  return `expected ${expected}, got ${describeValue(value, path)}.`
}

/** Strings at these paths are omitted from messages. */
const SECRET_PATH = /key|secret|token|headers|value/i
const MAX_SHOWN_LENGTH = 60

function describeValue(value: unknown, path: string): string {
  if (Array.isArray(value)) return value.length === 0 ? 'an empty list' : 'a list'
  if (typeof value === 'function') return 'a function'
  if (typeof value === 'object' && value !== null) return 'an object'
  if (typeof value !== 'string') return String(value)
  return SECRET_PATH.test(path) || value.includes('@')
    ? `a string of ${value.length} characters`
    : JSON.stringify(value.slice(0, MAX_SHOWN_LENGTH))
}

function isWithin(value: unknown, min: number, max: number): boolean {
  return typeof value === 'number' && value >= min && value <= max
}

export function nearestName(
  misspelled: string,
  known: readonly string[],
  maxDistance: number = Math.max(2, Math.floor(misspelled.length / 3)),
): string | undefined {
  const name = misspelled.toLowerCase()
  const distances = known.map((candidate) => prefixDistance(candidate.toLowerCase(), name))
  const smallest = Math.min(...distances)
  return smallest > maxDistance ? undefined : known[distances.indexOf(smallest)]
}

function prefixDistance(known: string, name: string): number {
  return name.length > 2 && known.startsWith(name) ? 0 : editDistance(known, name)
}

export function editDistance(left: string, right: string): number {
  let previous = Array.from({ length: right.length + 1 }, (_, index) => index)
  for (let row = 1; row <= left.length; row++) {
    const current = [row]
    for (let column = 1; column <= right.length; column++) {
      const replaced = (previous[column - 1] ?? 0) + (left[row - 1] === right[column - 1] ? 0 : 1)
      current.push(Math.min(replaced, (previous[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1))
    }
    previous = current
  }
  return previous.at(-1) ?? 0
}

/** A field that is undefined, such as one from an unset environment variable, has its default. */
export function withDefaults<Options extends object>(defaults: Options, options: Partial<Options> = {}): Options {
  const defined = Object.entries(options).filter(([, value]) => value !== undefined)
  return { ...defaults, ...Object.fromEntries(defined) }
}
