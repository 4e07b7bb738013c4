import { notUnderstood } from '../core/steering-headers.ts'

/** What a caller's headers ask of the cache. */
export interface CacheWishes {
  /** False: a stored answer is not wanted (`Cache-Control: no-cache` or `no-store`). */
  readonly read: boolean
  /** False: nothing of this request may be kept (`Cache-Control: no-store`). */
  readonly write: boolean
  /** The least similarity the caller accepts (`X-Svc-Cache-Threshold`); counts only where it is above the operator's. */
  readonly threshold?: number
}

/** What holds without headers. */
export const NO_WISHES: CacheWishes = { read: true, write: true }

/** The directives of HTTP, of which three concern this cache. */
const DIRECTIVE =
  /^(?:no-cache(?:="?[\w, -]*"?)?|no-store|no-transform|only-if-cached|private(?:="?[\w, -]*"?)?|public|immutable|(?:must|proxy)-revalidate|must-understand|max-stale|(?:max-age|s-maxage|max-stale|min-fresh|stale-while-revalidate|stale-if-error)\s*=\s*"?\d+"?)$/

/**
 * Reads the two headers; `header` gives a value by its lower-case name. A threshold above 1 means the same text only.
 * Throws `invalid-request` for a value that is not understood: of a misspelled `no-store` the answer would be kept.
 */
export function readCacheWishes(header: (name: string) => string | null | undefined): CacheWishes {
  const directives = readDirectives(header('cache-control') ?? '')
  const noStore = directives.includes('no-store')
  const noCache = directives.some((directive) => /^(?:no-cache\b.*|max-age\s*=\s*"?0+"?)$/.test(directive))
  const threshold = readThreshold(header('x-svc-cache-threshold'))
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
