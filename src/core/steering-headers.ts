import { GatewayError } from './errors.ts'
import type { HttpRequest } from './http.ts'
import { nearestName } from './nearest.ts'

/** Anything that gives a header by its name in lower case. */
export interface HeaderSource {
  get(name: string): string | null
}

/** The request headers by which a caller steers the gateway, spelled as in the docs. */
const KNOWN = [
  'X-Savings-Level',
  'X-Vanishing-Context',
  'X-Svc-RLM',
  'X-Svc-Cache-Threshold',
  'X-Svc-Explain',
  'X-Svc-Detach',
] as const

export type SteeringHeader = (typeof KNOWN)[number]

const PREFIX = 'x-svc-'
const KNOWN_NAMES: ReadonlySet<string> = new Set(KNOWN.map((name) => name.toLowerCase()))
const TRUE: ReadonlySet<string> = new Set(['1', 'true', 'yes'])
const FALSE: ReadonlySet<string> = new Set(['0', 'false', 'no'])
const MAX_ECHO = 40

/** Returns whether the caller switched something on. Throws `invalid-request` for a value that is neither yes nor no. */
export function readFlag(headers: HeaderSource, name: SteeringHeader): boolean {
  const value = headers.get(name.toLowerCase())
  if (value === null || FALSE.has(value.trim().toLowerCase())) return false
  if (isTrue(value)) return true
  throw notUnderstood(name, value, '1, true, yes, 0, false or no')
}

/** The same for code that runs before or after the check of the headers: a value that is not understood means no. */
export function hasFlag(request: Pick<HttpRequest, 'header'>, name: Lowercase<SteeringHeader>): boolean {
  const value = request.header(name)
  return value !== undefined && isTrue(value)
}

function isTrue(value: string): boolean {
  return TRUE.has(value.trim().toLowerCase())
}

/** The error for a steering header with a value that is not understood. */
export function notUnderstood(name: string, value: string, expected: string): GatewayError {
  const shown = value
    .trim()
    .replace(/[^\x20-\x7e]/g, '?')
    .slice(0, MAX_ECHO)
  return new GatewayError(
    'invalid-request',
    `${name} is "${shown}"; expected ${expected}. Leave the header out for the default.`,
    { param: name },
  )
}

const MAY_STEER = /^(?:x-s|x-v|cache-control$)/i

/** Returns false when no header can steer the gateway, judged by the beginnings of their names. */
export function maySteer(headers: { keys(): Iterable<string> }): boolean {
  for (const name of headers.keys()) if (MAY_STEER.test(name)) return true
  return false
}

/** Throws `invalid-request` for an `X-Svc-*` header that does not exist: a misspelled one would be ignored and billed. */
export function checkSteeringNames(headers: { keys(): Iterable<string> }): void {
  for (const given of headers.keys()) {
    const name = given.toLowerCase()
    if (!name.startsWith(PREFIX) || KNOWN_NAMES.has(name)) continue
    const shown = given.slice(0, MAX_ECHO)
    throw new GatewayError(
      'invalid-request',
      `There is no request header ${shown}. Did you mean ${nearestName(name.slice(0, 2 * MAX_ECHO), KNOWN, 2 * MAX_ECHO)}? Correct the name or leave the header out.`,
      { param: shown },
    )
  }
}
