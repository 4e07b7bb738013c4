interface Waiting<value> {
  readonly resolve: (result: IteratorResult<value, undefined>) => void
  readonly reject: (error: unknown) => void
}

/** A queue with one producer and one consumer, which pulls the values one by one. */
export class PullQueue<value> {
  /** Called with true when the consumer waits for a value, and with false after each push. */
  onDemand: ((isWanted: boolean) => void) | undefined
  readonly #values: value[] = []
  #waiting: Waiting<value> | undefined
  #ending: { readonly error?: unknown } | undefined

  push(value: value): void {
    const waiting = this.#waiting
    this.#waiting = undefined
    if (waiting === undefined) this.#values.push(value)
    else waiting.resolve({ done: false, value })
    this.onDemand?.(false)
  }

  end(): void {
    this.#finish({})
  }

  break(error: unknown): void {
    this.#finish({ error })
  }

  next(): Promise<IteratorResult<value, undefined>> {
    const [value] = this.#values.splice(0, 1)
    if (value !== undefined) return Promise.resolve({ done: false, value })
    const ending = this.#ending
    if (ending === undefined) {
      return new Promise((resolve, reject) => {
        this.#waiting = { resolve, reject }
        this.onDemand?.(true)
      })
    }
    return 'error' in ending ? Promise.reject(ending.error) : Promise.resolve({ done: true, value: undefined })
  }

  /** Returns an iterator to the end of the queue. Calls `onReturn` when the consumer stops early. */
  iterate(onReturn: () => void): AsyncIterableIterator<value> {
    const iterator: AsyncIterableIterator<value> = {
      [Symbol.asyncIterator]: () => iterator,
      next: () => this.next(),
      return: async () => {
        onReturn()
        this.end()
        return { done: true, value: undefined }
      },
    }
    return iterator
  }

  #finish(ending: { readonly error?: unknown }): void {
    if (this.#ending !== undefined) return
    this.#ending = ending
    const waiting = this.#waiting
    this.#waiting = undefined
    if ('error' in ending) waiting?.reject(ending.error)
    else waiting?.resolve({ done: true, value: undefined })
  }
}
