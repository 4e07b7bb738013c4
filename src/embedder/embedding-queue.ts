import { Cancellation, withTimeout } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { Runtime } from '../core/ports.ts'

interface QueueOptions {
  /** Embeds a few texts. Called again only after the previous call has ended. */
  readonly run: (texts: readonly string[]) => Promise<readonly Float32Array[]>
  /** Called if `run` did not end within `timeoutMs`. */
  readonly onStuck: (error: Error) => void
  readonly timeoutMs: number
  readonly maxTexts: number
  readonly after: Runtime['after']
}

interface Call {
  readonly texts: readonly string[]
  readonly vectors: Float32Array[]
  readonly resolve: (vectors: readonly Float32Array[]) => void
  readonly reject: (error: unknown) => void
}

/** A canceled call ends after the run in progress. */
const TEXTS_PER_RUN = 4

/** Runs the call with the fewest remaining texts first, so that a single text does not wait for a whole conversation. */
export class EmbeddingQueue {
  readonly #options: QueueOptions
  readonly #calls: Call[] = []
  #textCount = 0
  #isRunning = false

  constructor(options: QueueOptions) {
    this.#options = options
  }

  async embed(texts: readonly string[], signal?: AbortSignal): Promise<readonly Float32Array[]> {
    const { timeoutMs, maxTexts, after } = this.#options
    signal?.throwIfAborted()
    if (texts.length === 0) return []
    if (this.#textCount + texts.length > maxTexts)
      throw new GatewayError(
        'overloaded',
        `The local embedder has ${this.#textCount} texts in its queue and got ${texts.length} more. Expected at most ${maxTexts}. Retry later, or raise maxQueuedTexts.`,
      )
    let call: Call | undefined
    const embedding = new Promise<readonly Float32Array[]>((resolve, reject) => {
      call = { texts, vectors: [], resolve, reject }
      this.#calls.push(call)
    })
    this.#textCount += texts.length
    void this.#runAll()
    const cancellation = signal === undefined ? undefined : Cancellation.of(signal)
    const createError = (): Error =>
      new GatewayError('upstream-timeout', `The local embedder did not embed ${texts.length} texts in ${timeoutMs} ms.`)
    try {
      return await withTimeout(embedding, { ms: timeoutMs, after, createError, cancellation })
    } finally {
      this.#textCount -= texts.length
      const index = this.#calls.findIndex((other) => other === call)
      if (index !== -1) this.#calls.splice(index, 1)
    }
  }

  rejectAll(error: Error): void {
    for (const call of this.#calls.splice(0)) call.reject(error)
  }

  async #runAll(): Promise<void> {
    if (this.#isRunning) return
    this.#isRunning = true
    for (let call = this.#shortest(); call !== undefined; call = this.#shortest()) await this.#runNext(call)
    this.#isRunning = false
  }

  async #runNext(call: Call): Promise<void> {
    const { run, onStuck, timeoutMs, after } = this.#options
    const { texts, vectors } = call
    const createError = (): Error => {
      const error = new GatewayError('upstream-timeout', `The local embedder did not respond within ${timeoutMs} ms.`)
      onStuck(error)
      return error
    }
    const next = texts.slice(vectors.length, vectors.length + TEXTS_PER_RUN)
    let failure: { readonly error: unknown } | undefined
    try {
      vectors.push(...(await withTimeout(run(next), { ms: timeoutMs, after, createError })))
    } catch (error) {
      failure = { error }
    }
    const index = this.#calls.indexOf(call)
    if (index === -1 || (failure === undefined && vectors.length < texts.length)) return
    this.#calls.splice(index, 1)
    if (failure === undefined) call.resolve(vectors)
    else call.reject(failure.error)
  }

  #shortest(): Call | undefined {
    const remaining = ({ texts, vectors }: Call): number => texts.length - vectors.length
    return this.#calls.reduce<Call | undefined>(
      (best, call) => (best === undefined || remaining(call) < remaining(best) ? call : best),
      undefined,
    )
  }
}
