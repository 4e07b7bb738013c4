/**
 * Counts of values in buckets whose bounds grow by a fixed factor, so that every percentile is right within 1 % of its
 * value. Two histograms add up to that of all their values.
 */
export interface Histogram {
  record(value: number): void
  /** The value that the share `quantile` (0 to 1) of all values does not pass; 0 when there are none. */
  percentile(quantile: number): number
  merge(other: HistogramCounts): void
  counts(): HistogramCounts
}

/** Plain data, to be sent or stored: pairs of a bucket's index and its count. */
export type HistogramCounts = readonly (readonly [number, number])[]

const RELATIVE_ERROR = 0.01
const FACTOR = (1 + RELATIVE_ERROR) / (1 - RELATIVE_ERROR)
const LOG_FACTOR = Math.log(FACTOR)
/** Values up to this are one bucket and count as 0; in milliseconds a tenth of a microsecond. */
const SMALLEST = 1e-4
/** They reach beyond a day in milliseconds; greater values count as the greatest. */
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

/** The point of a bucket from which both its ends are equally far, measured by their own size. */
function valueOf(index: number): number {
  return index === 0 ? 0 : (SMALLEST * FACTOR ** index * 2) / (FACTOR + 1)
}
