import { GatewayError } from '../core/errors.ts'
import type { HeaderRecord } from '../core/http.ts'

export type PathVariables = Readonly<Record<string, string>>

export type Method = 'GET' | 'POST' | 'PUT' | 'DELETE'

export interface Endpoint<Handler> {
  readonly method: Method
  /** `:name` matches one segment. `*name`, as the last segment, matches the rest of the path. */
  readonly path: string
  readonly handle: Handler
}

export interface Match<Handler> {
  readonly handle: Handler
  readonly variables: PathVariables
}

interface PathEntry<Handler> {
  readonly segments: readonly string[]
  readonly methods: Map<Method, Handler>
}

export type Router<Handler> = (method: string, pathname: string) => Match<Handler>

/** Paths are case-sensitive and are not normalized. */
export function createRouter<Handler>(endpoints: readonly Endpoint<Handler>[]): Router<Handler> {
  const exact = new Map<string, PathEntry<Handler>>()
  const patterns = new Map<string, PathEntry<Handler>>()
  for (const { path, method, handle } of endpoints) {
    const entries = /\/[:*]/.test(path) ? patterns : exact
    const entry: PathEntry<Handler> = entries.get(path) ?? { segments: path.split('/'), methods: new Map() }
    entry.methods.set(method, handle)
    entries.set(path, entry)
  }
  return (method, pathname) => {
    const match = findEntry(pathname, exact, patterns.values())
    if (match === undefined) throw unknownPath(pathname)
    const handle = match.entry.methods.get(method === 'HEAD' ? 'GET' : (method as Method))
    if (handle === undefined) throw wrongMethod(method, [...match.entry.methods.keys()])
    return { handle, variables: match.variables }
  }
}

function findEntry<Handler>(
  pathname: string,
  exact: ReadonlyMap<string, PathEntry<Handler>>,
  patterns: Iterable<PathEntry<Handler>>,
): { readonly entry: PathEntry<Handler>; readonly variables: PathVariables } | undefined {
  const entry = exact.get(pathname)
  if (entry !== undefined) return { entry, variables: {} }
  const segments = pathname.split('/')
  for (const candidate of patterns) {
    const variables = matchSegments(candidate.segments, segments)
    if (variables !== undefined) return { entry: candidate, variables }
  }
  return undefined
}

function matchSegments(pattern: readonly string[], segments: readonly string[]): PathVariables | undefined {
  const hasWildcard = pattern.at(-1)?.startsWith('*') === true
  if (hasWildcard ? segments.length < pattern.length : segments.length !== pattern.length) return undefined
  const variables: Record<string, string> = {}
  for (const [index, part] of pattern.entries()) {
    const segment = part.startsWith('*') ? segments.slice(index).join('/') : segments[index]
    if (segment === undefined) return undefined
    if (!part.startsWith(':') && !part.startsWith('*')) {
      if (part !== segment) return undefined
      continue
    }
    const value = decode(segment)
    if (value === undefined || value === '') return undefined
    variables[part.slice(1)] = value
  }
  return variables
}

function decode(segment: string): string | undefined {
  try {
    return decodeURIComponent(segment)
  } catch {
    return undefined
  }
}

function unknownPath(pathname: string): GatewayError {
  return new GatewayError(
    'not-found',
    `The path ${printable(pathname)} does not exist. Check the base URL, and the basePath option if the gateway is mounted under a path.`,
  )
}

function wrongMethod(method: string, methods: readonly Method[]): GatewayError {
  const allow = methods.includes('GET') ? [...methods, 'HEAD'] : methods
  const message = `The path does not support ${printable(method)}. Use ${methods.join(' or ')}.`
  return new GatewayError('method-not-allowed', message, { allow })
}

function printable(text: string): string {
  return text
    .slice(0, 100)
    .replace(/[^\x20-\x7e]/g, '?')
    .replace(/\bsk-[\w-]*/gi, '[key]')
}

/** The official clients of every format can parse this response. */
export function plainFailure(message: string): { status: number; headers: HeaderRecord; body: string } {
  const error = { type: 'api_error', message, param: null, code: null }
  const body = JSON.stringify({ type: 'error', error })
  return { status: 500, headers: { 'content-type': 'application/json' }, body }
}
