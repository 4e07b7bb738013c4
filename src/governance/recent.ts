import { chain, isPromise, type MaybePromise } from '../core/async.ts'

/** A bounded cache of recent look-ups. When it is full, the oldest entry is removed. */
export interface Recent<value> {
  get(key: string, now: number): { readonly value: value } | undefined
  /** Returns the last value, regardless of its age. */
  last(key: string): { readonly value: value } | undefined
  put(key: string, value: value, until: number): void
  forget(key: string): void
}

export function createRecent<value>(most: number): Recent<value> {
  const entries = new Map<string, { readonly value: value; readonly until: number }>()

  function get(key: string, now: number): { readonly value: value } | undefined {
    const entry = entries.get(key)
    return entry !== undefined && now < entry.until ? entry : undefined
  }

  function put(key: string, value: value, until: number): void {
    entries.delete(key)
    entries.set(key, { value, until })
    if (entries.size <= most) return
    const [oldest] = entries.keys()
    if (oldest !== undefined) entries.delete(oldest)
  }

  return { get, last: (key) => entries.get(key), put, forget: (key) => void entries.delete(key) }
}

/** Continues with the result of a look-up. If the look-up fails, returns the last value if there is one. */
export function orLast<found, value>(
  finding: MaybePromise<found>,
  goOn: (found: found) => value,
  last: { readonly value: value } | undefined,
): MaybePromise<value> {
  if (last === undefined || !isPromise(finding)) return chain(finding, goOn)
  return finding.then(goOn, () => last.value)
}
