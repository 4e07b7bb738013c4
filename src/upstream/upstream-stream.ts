import type { ResponseSource, SourceReceiver, StreamChunk } from '../core/completion.ts'
import { closeIterator } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import type { Runtime } from '../core/ports.ts'
import type { ResponseTranslator, TranslatedChunk } from './response-translator.ts'

interface StreamEndListener {
  onComplete(): void
  onError(error: unknown): void
}

/** Exactly one of these functions is called, exactly once. */
export interface StreamEndObserver extends StreamEndListener {
  onDisconnect(): void
}

/** The error is absent for a complete or aborted stream. */
interface StreamOutcome {
  readonly error?: unknown
}

const ABORTED: StreamOutcome = {}

export interface StreamListener extends StreamEndListener {
  onChunk(chunk: TranslatedChunk): void
}

/**
 * The stream is open after its first content. If it fails before that, another route can be attempted. A stream without
 * content is opened after a delay, because the client needs the response's headers and heartbeats to stay connected.
 */
export class UpstreamStream implements SourceReceiver {
  readonly translator: ResponseTranslator
  readonly #source: ResponseSource
  readonly #buffered: TranslatedChunk[] = []
  #listener: StreamListener | undefined
  #endObserver: StreamEndObserver | undefined
  #outcome: StreamOutcome | undefined
  #onOpen: (() => void) | undefined
  #onFailure: ((error: unknown) => void) | undefined
  #cancelHold: () => void = () => {}

  constructor(source: ResponseSource, translator: ResponseTranslator) {
    this.#source = source
    this.translator = translator
  }

  /** Resolves after the first content, the end or `holdMs` milliseconds. Rejects if the stream fails before that. */
  open({ after }: Pick<Runtime, 'after'>, holdMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#onOpen = resolve
      this.#onFailure = reject
      this.#source.read(this)
      if (this.#onOpen !== undefined) this.#cancelHold = after(holdMs, () => this.#markOpen())
    })
  }

  observeEnd(observer: StreamEndObserver): void {
    this.#endObserver = observer
    if (this.#outcome === ABORTED) observer.onDisconnect()
    else if (this.#outcome !== undefined) notify(observer, this.#outcome)
  }

  attach(listener: StreamListener): void {
    this.#listener = listener
    for (const chunk of this.#buffered.splice(0)) listener.onChunk(chunk)
    if (this.#outcome !== undefined) notify(listener, this.#outcome)
  }

  pause(): void {
    if (this.#outcome === undefined) this.#source.pause()
  }

  resume(): void {
    if (this.#outcome === undefined) this.#source.resume()
  }

  /** The listener is not called again. If the stream is not open yet, `open` rejects with the reason. */
  abort(reason?: unknown): void {
    this.#listener = undefined
    if (this.#outcome !== undefined) return
    this.#outcome = ABORTED
    this.#endObserver?.onDisconnect()
    this.#abortSource()
    this.#cancelHold()
    this.#onOpen = undefined
    this.#onFailure?.(reason)
  }

  fail(error: unknown): void {
    this.#abortSource()
    this.#settle({ error })
  }

  onBytes(bytes: Uint8Array): void {
    if (this.#outcome !== undefined) return
    let chunk: TranslatedChunk
    try {
      chunk = this.translator.push(bytes)
    } catch (error) {
      return this.fail(error)
    }
    this.#forward(chunk)
  }

  onChunk(chunk: StreamChunk): void {
    this.#translate(() => this.translator.pushChunk(chunk))
  }

  onEnd(): void {
    this.#translate(() => this.translator.finish())
  }

  onError(error: unknown): void {
    this.#settle({ error })
  }

  #translate(translate: () => TranslatedChunk): void {
    if (this.#outcome !== undefined) return
    let chunk: TranslatedChunk
    try {
      chunk = translate()
    } catch (error) {
      return this.fail(error)
    }
    this.#forward(chunk)
  }

  #forward(chunk: TranslatedChunk): void {
    if (chunk.length > 0) {
      if (this.#listener === undefined) this.#buffered.push(chunk)
      else this.#listener.onChunk(chunk)
    }
    // A failure after the first content is not retried, even if the whole stream has arrived in one piece.
    if (this.translator.hasContent) this.#markOpen()
    if (this.translator.isComplete) {
      this.#source.complete()
      const error = this.translator.forwardedFailure()
      return this.#settle(error === undefined ? {} : { error })
    }
    if (this.translator.failure !== undefined) this.fail(this.translator.failure)
  }

  #abortSource(): void {
    try {
      this.#source.abort()
    } catch {
      // The request must end even if a custom source throws.
    }
  }

  #markOpen(): void {
    this.#cancelHold()
    this.#onOpen?.()
    this.#onOpen = undefined
    this.#onFailure = undefined
  }

  #settle(outcome: StreamOutcome): void {
    if (this.#outcome !== undefined) return
    this.#outcome = outcome
    const fail = this.#onFailure
    if ('error' in outcome && fail !== undefined) {
      this.#cancelHold()
      this.#onOpen = undefined
      fail(outcome.error)
      this.#listener?.onError(outcome.error)
      return
    }
    this.#markOpen()
    notify(this.#endObserver, outcome)
    notify(this.#listener, outcome)
  }
}

function notify(listener: StreamEndListener | undefined, outcome: StreamOutcome): void {
  if ('error' in outcome) listener?.onError(outcome.error)
  else if (outcome !== ABORTED) listener?.onComplete()
}

export function createReplaySource(chunks: readonly StreamChunk[]): ResponseSource {
  const ignore = (): void => {}
  return {
    read: (receiver) => {
      for (const chunk of chunks) receiver.onChunk(chunk)
    },
    pause: ignore,
    resume: ignore,
    complete: ignore,
    abort: ignore,
  }
}

export function createChunkSource(chunks: AsyncIterable<StreamChunk>, provider: string): ResponseSource {
  const iterator = chunks[Symbol.asyncIterator]()
  let isOver = false
  let isPaused = false
  let wake: () => void = () => {}

  async function readAll(receiver: SourceReceiver): Promise<void> {
    try {
      while (!isOver) {
        if (isPaused) await new Promise<void>((resolve) => (wake = resolve))
        const result = isOver ? undefined : await iterator.next()
        if (isOver || result === undefined) return
        if (result.done === true) {
          isOver = true
          return receiver.onEnd()
        }
        receiver.onChunk(result.value)
      }
    } catch (error) {
      if (isOver) return
      isOver = true
      const message = `The provider "${provider}" ended its response early.`
      receiver.onError(GatewayError.is(error) ? error : new GatewayError('upstream', message, { cause: error }))
    }
  }
  const stop = (): void => {
    if (isOver) return
    isOver = true
    wake()
    closeIterator(iterator)
  }
  return {
    read: (receiver) => void readAll(receiver),
    pause: () => {
      isPaused = true
    },
    resume: () => {
      isPaused = false
      wake()
    },
    complete: stop,
    abort: stop,
  }
}
