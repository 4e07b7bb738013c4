/**
 * Counts of values in buckets whose bounds grow by a fixed factor, so that every percentile is accurate to 1 %.
 * Histograms can be added.
 */
export interface Histogram {
  record(value: number): void
  /** Returns the value that the share `quantile` (0 to 1) of all values does not exceed; 0 without values. */
  percentile(quantile: number): number
  merge(other: HistogramCounts): void
  counts(): HistogramCounts
}

/** Serializable form: pairs of a bucket's index and its count. */
export type HistogramCounts = readonly (readonly [number, number])[]

const RELATIVE_ERROR = 0.01
const FACTOR = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
const LOG_FACTOR = Math.log(FACTOR)
/** Values up to this limit (a tenth of a microsecond, in milliseconds) share one bucket and count as 0. */
const SMALLEST = 1e-4
/** Number of buckets. They cover more than a day in milliseconds; greater values count in the last bucket. */
const BUCKETS = 1_400

export function createHistogram(): Histogram {
  const counts = new Float64Array(BUCKETS)
  let total = 0

  function addTo(index: number, count: number): void {
    counts[index] = (counts[index] ?? 0) + count
    total += count
  }

  function percentile(quantile: number): number {
    if (total === 0) return 0
    const rank = Math.max(1, Math.ceil(Math.min(1, quantile) * total))
    let seen = 0
    for (const [index, count] of counts.entries()) {
      seen += count
      if (seen >= rank) return valueOf(index)
    }
    return valueOf(BUCKETS - 1)
  }

  function merge(other: HistogramCounts): void {
    for (const [index, count] of other) {
      if (Number.isInteger(index) && index >= 0 && index < BUCKETS && count > 0) addTo(index, count)
    }
  }

  return {
    record: (value) => addTo(bucketOf(value), 1),
    percentile,
    merge,
    counts: () => [...counts.entries()].filter(([, count]) => count > 0),
  }
}

function bucketOf(value: number): number {
  if (!(value > SMALLEST)) return 0
  return Math.min(BUCKETS - 1, Math.ceil(Math.log(value / SMALLEST) / LOG_FACTOR))
}

/** Returns the value of a bucket with the same relative distance from both of its bounds. */
function valueOf(index: number): number {
  return index === 0 ? 0 : (SMALLEST * FACTOR ** index * 2) / (FACTOR + 1)
}
