/** A set of texts in ascending order of their UTF-16 units. */
export interface OrderedKeys {
  add(key: string): void
  remove(key: string): void
  /** Those with this prefix and after `after`, at most `limit`. */
  list(prefix: string, after: string | undefined, limit: number): string[]
  clear(): void
}

/** A bucket that grows past this is cut in two. */
const BUCKET = 512

/** Sorted buckets: adding and removing move at most one bucket's entries. */
export function createOrderedKeys(): OrderedKeys {
  let buckets: string[][] = []

  /** The first bucket whose last key is not below `key`; the number of buckets when there is none. */
  const bucketFor = (key: string): number =>
    firstAtLeast(buckets.length, (index) => (buckets[index]?.at(-1) ?? '') >= key)

  function add(key: string): void {
    if (buckets.length === 0) buckets.push([])
    const index = Math.min(bucketFor(key), buckets.length - 1)
    const bucket = buckets[index] ?? []
    const at = placeIn(bucket, key)
    if (bucket[at] === key) return
    bucket.splice(at, 0, key)
    if (bucket.length > BUCKET) buckets.splice(index + 1, 0, bucket.splice(BUCKET / 2))
  }

  function remove(key: string): void {
    const index = bucketFor(key)
    const bucket = buckets[index]
    if (bucket === undefined) return
    const at = placeIn(bucket, key)
    if (bucket[at] !== key) return
    bucket.splice(at, 1)
    if (bucket.length === 0) buckets.splice(index, 1)
  }

  function list(prefix: string, after: string | undefined, limit: number): string[] {
    const from = after !== undefined && after > prefix ? after : prefix
    const found: string[] = []
    const first = bucketFor(from)
    for (let index = first; index < buckets.length; index += 1) {
      const bucket = buckets[index] ?? []
      for (let at = index === first ? placeIn(bucket, from) : 0; at < bucket.length; at += 1) {
        const key = bucket[at] ?? ''
        if (found.length >= limit || !key.startsWith(prefix)) return found
        if (key !== after) found.push(key)
      }
    }
    return found
  }

  return { add, remove, list, clear: () => void (buckets = []) }
}

/** The index of `key` in a sorted list, or the index at which it would be inserted. */
function placeIn(sorted: readonly string[], key: string): number {
  return firstAtLeast(sorted.length, (index) => (sorted[index] ?? '') >= key)
}

/** Binary search: the first index below `length` that `reaches`, else `length`. */
function firstAtLeast(length: number, reaches: (index: number) => boolean): number {
  let low = 0
  let high = length
  while (low < high) {
    const middle = (low + high) >> 1
    if (reaches(middle)) high = middle
    else low = middle + 1
  }
  return low
}
