interface Waiting<value> {
  readonly resolve: (result: IteratorResult<value, undefined>) => void
  readonly reject: (error: unknown) => void
}

/** Values that are pushed on one side and drawn one by one on the other. */
export class PullQueue<value> {
  /** Called with true when a value is waited for, and with false when one came. */
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

  /** Draws until the end; `leave` is called when the reader stops before it. */
  iterate(leave: () => void): AsyncIterableIterator<value> {
    const iterator: AsyncIterableIterator<value> = {
      [Symbol.asyncIterator]: () => iterator,
      next: () => this.next(),
      return: async () => {
        leave()
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
