/** What a body queue steers. */
export interface Flow {
  pause(): void
  resume(): void
  abort(reason: Error): void
}

/** The bytes of one response between the socket that brings them and the one reader who takes them. */
export interface BodyQueue extends AsyncIterable<Uint8Array> {
  push(bytes: Uint8Array): void
  /** No more bytes come; with a failure the reader gets it after what already came. */
  end(failure?: unknown): void
}

/** The socket is paused while so many bytes wait for their reader. */
const MOST_WAITING = 64 * 1024

const LAST: IteratorReturnResult<undefined> = { done: true, value: undefined }

/** A queue for one reader. It holds about 64 KiB: a slow reader slows the upstream. */
export function createBodyQueue(flow: Flow): BodyQueue {
  let waiting: Uint8Array[] = []
  let size = 0
  let paused = false
  let ended = false
  let failure: unknown
  let reader: { resolve: (result: IteratorResult<Uint8Array>) => void; reject: (reason: unknown) => void } | undefined

  const next = (): Promise<IteratorResult<Uint8Array>> => {
    const bytes = waiting.shift()
    if (bytes !== undefined) {
      size -= bytes.byteLength
      if (paused && size === 0) {
        paused = false
        flow.resume()
      }
      return Promise.resolve({ done: false, value: bytes })
    }
    if (failure !== undefined) return Promise.reject(failure)
    if (ended) return Promise.resolve(LAST)
    return new Promise((resolve, reject) => {
      reader = { resolve, reject }
    })
  }
  const leave = (): Promise<IteratorResult<Uint8Array>> => {
    waiting = []
    if (!ended) flow.abort(new Error('The reader of the response left'))
    ended = true
    failure = undefined
    return Promise.resolve(LAST)
  }
  return {
    [Symbol.asyncIterator]: () => ({ next, return: leave }),
    push(bytes) {
      if (ended) return
      if (reader !== undefined) {
        const { resolve } = reader
        reader = undefined
        resolve({ done: false, value: bytes })
        return
      }
      waiting.push(bytes)
      size += bytes.byteLength
      if (size < MOST_WAITING || paused) return
      paused = true
      flow.pause()
    },
    end(reason) {
      if (ended) return
      ended = true
      failure = reason
      if (reason === undefined) reader?.resolve(LAST)
      else reader?.reject(reason)
      reader = undefined
    },
  }
}
