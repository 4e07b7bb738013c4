import { withTimeout } from '../core/async.ts'
import type { Runtime } from '../core/ports.ts'

/** A request runs while it has a subscriber, such as its caller, a repeated request, or a follower of its stream. */
export class Subscribers {
  #count = 0
  #isOver = false
  readonly #onLastLeave: () => void

  constructor(onLastLeave: () => void) {
    this.#onLastLeave = onLastLeave
  }

  /** True after the last subscriber has left. The request is then canceled, and later subscribers get no result. */
  get isOver(): boolean {
    return this.#isOver
  }

  /** Returns a function that removes the subscriber. */
  join(): () => void {
    let isPresent = true
    this.#count += 1
    return () => {
      if (!isPresent) return
      isPresent = false
      this.#count -= 1
      if (this.#count > 0 || this.#isOver) return
      this.#isOver = true
      this.#onLastLeave()
    }
  }
}

const CLOSE_TIMEOUT_MS = 5_000

/** Tracks work that continues after its caller disconnects. */
export class DetachedWork {
  readonly #running = new Map<() => void, Promise<void>>()
  readonly #after: Runtime['after']

  constructor({ after }: Pick<Runtime, 'after'>) {
    this.#after = after
  }

  /** `end` requests an early end. */
  add({ end, ended }: { readonly end: () => void; readonly ended: Promise<unknown> }): void {
    const forget = (): void => void this.#running.delete(end)
    this.#running.set(end, ended.then(forget, forget))
  }

  async close(): Promise<void> {
    for (const end of this.#running.keys()) end()
    const ended = Promise.all(this.#running.values())
    const createError = (): Error => new Error('The work did not end in time.')
    await withTimeout(ended, { ms: CLOSE_TIMEOUT_MS, after: this.#after, createError }).catch(() => {})
  }
}
