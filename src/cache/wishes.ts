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

/**
 * Reads the two headers; `header` gives a value by its lower-case name. A threshold that is no number is ignored,
 * because a wish about the cache is no reason to refuse a request; one above 1 means the same text only.
 */
export function readCacheWishes(header: (name: string) => string | null | undefined): CacheWishes {
  const directives = (header('cache-control') ?? '')
    .toLowerCase()
    .split(',')
    .map((directive) => directive.trim())
  const noStore = directives.includes('no-store')
  const noCache = directives.some((directive) => /^(?:no-cache\b.*|max-age\s*=\s*"?0+"?)$/.test(directive))
  const threshold = readThreshold(header('x-svc-cache-threshold'))
  return { read: !noStore && !noCache, write: !noStore, ...(threshold === undefined ? {} : { threshold }) }
}

function readThreshold(value: string | null | undefined): number | undefined {
  const text = value?.trim() ?? ''
  if (!/^\d{1,4}(?:\.\d{1,18})?$/.test(text)) return undefined
  return Math.min(1, Number(text))
}
