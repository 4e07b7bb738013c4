import { headerError } from '../core/http.ts'

export interface CacheDirectives {
  readonly allowsRead: boolean
  readonly allowsWrite: boolean
  readonly threshold?: number
}

export const NO_DIRECTIVES: CacheDirectives = { allowsRead: true, allowsWrite: true }

/** The registered Cache-Control directives. */
const DIRECTIVE =
  /^(?:no-cache(?:="?[\w, -]*"?)?|no-store|no-transform|only-if-cached|private(?:="?[\w, -]*"?)?|public|immutable|(?:must|proxy)-revalidate|must-understand|max-stale|(?:max-age|s-maxage|max-stale|min-fresh|stale-while-revalidate|stale-if-error)\s*=\s*"?\d+"?)$/

/** Throws for an unknown directive, because ignoring a misspelled `no-store` would store the response. */
export function readCacheDirectives(header: (name: string) => string | null | undefined): CacheDirectives {
  const control = header('cache-control')
  const threshold = readThreshold(header('x-svc-cache-threshold'))
  if (!control && threshold === undefined) return NO_DIRECTIVES
  const directives = readDirectives(control ?? '')
  const noStore = directives.includes('no-store')
  const noCache = directives.some((directive) => /^(?:no-cache\b.*|max-age\s*=\s*"?0+"?)$/.test(directive))
  return { allowsRead: !noStore && !noCache, allowsWrite: !noStore, ...(threshold === undefined ? {} : { threshold }) }
}

function readDirectives(value: string): readonly string[] {
  const directives = value.toLowerCase().split(',')
  return directives.map((directive) => {
    const trimmed = directive.trim()
    if (trimmed === '' || DIRECTIVE.test(trimmed)) return trimmed
    throw headerError('Cache-Control', directive, 'Cache-Control directives, such as no-store or no-cache')
  })
}

function readThreshold(value: string | null | undefined): number | undefined {
  if (value === null || value === undefined) return undefined
  const text = value.trim()
  const threshold = Number(text)
  if (/^\d{1,4}(?:\.\d{1,18})?$/.test(text) && threshold <= 1) return threshold
  const share = threshold / 100
  const hint = share >= MIN_THRESHOLD && share <= 1 ? ` (did you mean ${share}?)` : ''
  throw headerError('X-Svc-Cache-Threshold', value, `a number from 0 to 1, such as 0.98${hint}`)
}

export const MIN_THRESHOLD = 0.85
