/** Receives records. A returned promise is not awaited. A record for which it throws is counted as dropped. */
export type Sink<record> = (record: record) => unknown

/** Passes records to a sink of the operator, and isolates requests from its errors and delays. */
export interface GuardedSink<record> {
  hand(record: record): void
  /** Number of records that the sink refused or that exceeded the maximum number in progress. */
  dropped(): number
}

/** Maximum number of records in progress in an asynchronous sink. Further records are dropped. */
const MAX_PENDING = 1_000

export function guardSink<record>(sink: Sink<record> | undefined): GuardedSink<record> {
  let dropped = 0
  let pending = 0

  function hand(record: record): void {
    if (sink === undefined) return
    if (pending >= MAX_PENDING) {
      dropped += 1
      return
    }
    try {
      const result = sink(record)
      if (isThenable(result)) void follow(result)
    } catch {
      dropped += 1
    }
  }

  async function follow(result: PromiseLike<unknown>): Promise<void> {
    pending += 1
    try {
      await result
    } catch {
      dropped += 1
    } finally {
      pending -= 1
    }
  }

  return { hand, dropped: () => dropped }
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === 'object' && value !== null && 'then' in value && typeof value.then === 'function'
}
