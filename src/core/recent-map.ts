/**
 * A map that keeps at least the last `max / 2` used entries and at most `max`.
 *
 * For caches of small values on the request path. `lru-cache` keeps exactly `max` entries, but its 18 KB would be loaded
 * with the main entry, and it allocates its lists for `max` entries at once.
 */
export class RecentMap<Key, Value extends object> {
  readonly #max: number
  #recent = new Map<Key, Value>()
  /** Entries that were not used since `#recent` was empty. */
  #older = new Map<Key, Value>()

  constructor(max: number) {
    this.#max = max
  }

  get(key: Key): Value | undefined {
    const value = this.#recent.get(key)
    if (value !== undefined) return value
    const older = this.#older.get(key)
    if (older !== undefined) this.set(key, older)
    return older
  }

  set(key: Key, value: Value): void {
    if (!this.#recent.has(key) && this.#recent.size >= this.#max / 2) {
      this.#older = this.#recent
      this.#recent = new Map()
    }
    this.#recent.set(key, value)
  }
}
