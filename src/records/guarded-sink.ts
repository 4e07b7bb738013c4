/** Where records go. What it returns is not waited for, what it throws is counted. */
export type Sink<record> = (record: record) => unknown

/** Hands records to someone else's code so that nothing it does reaches a request. */
export interface GuardedSink<record> {
  hand(record: record): void
  /** Records that the sink refused, or that came while too many others were under way. */
  dropped(): number
}

/** Records that an asynchronous sink has not finished; more are dropped. */
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
