/** What the headers of a request ask of the cache. */
export interface CacheDirectives {
  /** False: no stored answer is returned (`Cache-Control: no-cache` or `no-store`). */
  readonly read: boolean
  /** False: nothing of this request is stored (`Cache-Control: no-store`). */
  readonly write: boolean
  /** Minimum similarity of a hit (`X-Svc-Cache-Threshold`). It applies only above the configured threshold. */
  readonly threshold?: number
}

/** The directives of a request without cache headers. */
export const NO_DIRECTIVES: CacheDirectives = { read: true, write: true }

/**
 * Reads both cache headers; `header` returns a value by its lower-case name. An invalid threshold is ignored; one above
 * 1 means 1, the same text only.
 */
export function readCacheDirectives(header: (name: string) => string | null | undefined): CacheDirectives {
  const control = header('cache-control')
  const threshold = readThreshold(header('x-svc-cache-threshold'))
  if (!control && threshold === undefined) return NO_DIRECTIVES
  const directives = (control ?? '')
    .toLowerCase()
    .split(',')
    .map((directive) => directive.trim())
  const noStore = directives.includes('no-store')
  const noCache = directives.some((directive) => /^(?:no-cache\b.*|max-age\s*=\s*"?0+"?)$/.test(directive))
  return { read: !noStore && !noCache, write: !noStore, ...(threshold === undefined ? {} : { threshold }) }
}

function readThreshold(value: string | null | undefined): number | undefined {
  const text = value?.trim() ?? ''
  if (!/^\d{1,4}(?:\.\d{1,18})?$/.test(text)) return undefined
  return Math.min(1, Number(text))
}
