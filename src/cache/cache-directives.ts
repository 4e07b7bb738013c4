import { notUnderstood } from '../core/http.ts'

/** The cache directives in the headers of a request. */
export interface CacheDirectives {
  /** False: no stored answer is returned (`Cache-Control: no-cache` or `no-store`). */
  readonly read: boolean
  /** False: the answer is not stored (`Cache-Control: no-store`). */
  readonly write: boolean
  /** Minimum similarity of a hit (`X-Svc-Cache-Threshold`). It applies only above the configured threshold. */
  readonly threshold?: number
}

/** The directives of a request without cache headers. */
export const NO_DIRECTIVES: CacheDirectives = { read: true, write: true }

/** The directives of HTTP. Three of them affect this cache. */
const DIRECTIVE =
  /^(?:no-cache(?:="?[\w, -]*"?)?|no-store|no-transform|only-if-cached|private(?:="?[\w, -]*"?)?|public|immutable|(?:must|proxy)-revalidate|must-understand|max-stale|(?:max-age|s-maxage|max-stale|min-fresh|stale-while-revalidate|stale-if-error)\s*=\s*"?\d+"?)$/

/**
 * Reads both cache headers; `header` returns a value by its lower-case name. A threshold above 1 means 1, so only the
 * same text hits. Throws `invalid-request` for an invalid value, because a misspelled `no-store` would store the
 * answer.
 */
export function readCacheDirectives(header: (name: string) => string | null | undefined): CacheDirectives {
  const control = header('cache-control')
  const threshold = readThreshold(header('x-svc-cache-threshold'))
  if (!control && threshold === undefined) return NO_DIRECTIVES
  const directives = readDirectives(control ?? '')
  const noStore = directives.includes('no-store')
  const noCache = directives.some((directive) => /^(?:no-cache\b.*|max-age\s*=\s*"?0+"?)$/.test(directive))
  return { read: !noStore && !noCache, write: !noStore, ...(threshold === undefined ? {} : { threshold }) }
}

function readDirectives(value: string): readonly string[] {
  const directives = value.toLowerCase().split(',')
  return directives.map((directive) => {
    const trimmed = directive.trim()
    if (trimmed === '' || DIRECTIVE.test(trimmed)) return trimmed
    throw notUnderstood('Cache-Control', directive, 'directives of HTTP, such as no-store or no-cache')
  })
}

function readThreshold(value: string | null | undefined): number | undefined {
  if (value === null || value === undefined) return undefined
  const text = value.trim()
  if (!/^\d{1,4}(?:\.\d{1,18})?$/.test(text)) {
    throw notUnderstood('X-Svc-Cache-Threshold', value, 'a number such as 0.98')
  }
  return Math.min(1, Number(text))
}
