import type { Cancellation } from '../core/async.ts'
import { GatewayError, type FailureDetails } from '../core/errors.ts'
import type { AnswerSource, SourceReceiver, StreamFormat } from '../core/answer.ts'
import type { Runtime, Timeouts, Transport, TransportCall, TransportHandler, TransportRequest } from '../core/ports.ts'
import { joinBytes } from '../core/http.ts'
import { upstreamError, connectError } from '../upstream/attempts.ts'
import { PacedStream } from './paced-stream.ts'

export interface HttpCallOptions {
  readonly provider: string
  readonly transport: Transport
  readonly runtime: Pick<Runtime, 'after' | 'now'>
  readonly timeouts: Timeouts
  readonly connectMs: number
  readonly cancellation: Cancellation
  /** Returns the maximum size of a body that is not streamed, in bytes. */
  readonly maxBytes: (status: number) => number
  readonly format: StreamFormat | undefined
  /** Returns true for a response that is streamed. Undefined if no response is streamed. */
  readonly isStream: ((status: number, header: ResponseHeader) => boolean) | undefined
}

/** Returns a header by its lowercase name. */
export type ResponseHeader = (name: string) => string | undefined

export interface CompleteResponse {
  readonly status: number
  readonly header: ResponseHeader
  /** Undefined if the body is too large, or if the body of an error is incomplete. */
  readonly text: string | undefined
}

export interface StreamResponse {
  readonly status: number
  readonly header: ResponseHeader
  readonly source: AnswerSource
}

const decoder = new TextDecoder()

/**
 * Maximum number of bytes read after the terminal event of a stream, such as `[DONE]`. The connection can be reused
 * only after the body ends.
 */
const MAX_BYTES_PAST_TERMINAL_EVENT = 4 * 1024

/** Resolves with the complete response, or with a stream as soon as the headers arrive. */
export function sendRequest(
  request: TransportRequest,
  options: HttpCallOptions,
): Promise<CompleteResponse | StreamResponse> {
  return new Promise((resolve, reject) => new HttpCall(options, resolve, reject).start(request))
}

/**
 * `timeouts.total` limits every call. For streams, `firstByte` limits the time until the headers, and `idle` limits the
 * time between two chunks while the reader accepts chunks.
 */
class HttpCall implements TransportHandler, AnswerSource {
  readonly #options: HttpCallOptions
  readonly #resolve: (response: CompleteResponse | StreamResponse) => void
  readonly #reject: (reason: unknown) => void
  #call: TransportCall | undefined
  #status = 0
  #header: ResponseHeader = () => undefined
  /** The chunks of a body that is not streamed. */
  #chunks: Uint8Array[] = []
  #receivedBytes = 0
  #maxBytes = 0
  /** Present for a streamed body. */
  #stream: PacedStream | undefined
  #isOver = false
  /** True after the terminal event of the stream. */
  #isPastTerminalEvent = false
  /** Time at which the last chunk arrived or the reader resumed. */
  #lastActivityAt = 0
  #isPaused = false
  #cancelTotalTimer: (() => void) | undefined
  #cancelIdleTimer: (() => void) | undefined
  #unsubscribe: (() => void) | undefined

  readonly format: StreamFormat | undefined

  constructor(
    options: HttpCallOptions,
    resolve: (response: CompleteResponse | StreamResponse) => void,
    reject: (reason: unknown) => void,
  ) {
    this.#options = options
    this.format = options.format
    this.#resolve = resolve
    this.#reject = reject
  }

  start(request: TransportRequest): void {
    const { cancellation, timeouts, runtime, transport, isStream } = this.#options
    if (cancellation.isCanceled) return this.#reject(cancellation.reason)
    this.#cancelTotalTimer = runtime.after(timeouts.total, () => this.#onTotalTimeout())
    if (isStream !== undefined) {
      const onFirstByteTimeout = (): void => this.#timeOut('did not begin to answer', timeouts.firstByte)
      this.#cancelIdleTimer = runtime.after(timeouts.firstByte, onFirstByteTimeout)
    }
    this.#unsubscribe = cancellation.onCancel(() => this.#stop(cancellation.reason))
    this.#call = transport(request, this)
  }

  onHead(status: number, header: ResponseHeader): void {
    const { isStream, maxBytes, timeouts, runtime } = this.#options
    this.#status = status
    this.#header = header
    this.#maxBytes = maxBytes(status)
    this.#cancelIdleTimer?.()
    if (isStream?.(status, header) !== true) return
    this.#stream = new PacedStream({
      pauseReading: () => this.#call?.pause(),
      resumeReading: () => {
        if (!this.#isPaused && !this.#isOver) this.#call?.resume()
      },
    })
    this.#lastActivityAt = runtime.now()
    this.#cancelIdleTimer = runtime.after(timeouts.idle, () => this.#checkIdle())
    this.#resolve({ status, header, source: this })
  }

  onData(bytes: Uint8Array): void {
    if (this.#isOver) return
    this.#receivedBytes += bytes.byteLength
    if (this.#stream === undefined) return this.#collect(bytes)
    if (this.#isPastTerminalEvent) {
      if (this.#receivedBytes > MAX_BYTES_PAST_TERMINAL_EVENT) this.abort()
      return
    }
    this.#lastActivityAt = this.#options.runtime.now()
    this.#stream.push(bytes)
  }

  onEnd(): void {
    if (this.#isOver) return
    this.#end()
    if (this.#isPastTerminalEvent) return
    if (this.#stream !== undefined) return this.#stream.end((receiver) => receiver.onEnd())
    const text = decoder.decode(joinBytes(this.#chunks, this.#receivedBytes))
    this.#resolve({ status: this.#status, header: this.#header, text })
  }

  onError(cause: unknown): void {
    if (this.#isOver) return
    const { provider, connectMs } = this.#options
    if (this.#status === 0) return this.#fail(connectError(provider, connectMs, cause))
    if (this.#status === 200 || this.#stream !== undefined) {
      return this.#fail(upstreamError(provider, 'did not complete its answer', cause))
    }
    // An error response with an incomplete body is reported by its status alone.
    this.#end()
    this.#resolve({ status: this.#status, header: this.#header, text: undefined })
  }

  read(receiver: SourceReceiver): void {
    this.#stream?.read(receiver)
  }

  pause(): void {
    this.#isPaused = true
    this.#call?.pause()
  }

  resume(): void {
    this.#isPaused = false
    this.#lastActivityAt = this.#options.runtime.now()
    if (this.#stream?.isYielding !== true) this.#call?.resume()
  }

  complete(): void {
    this.#isPastTerminalEvent = true
    this.#receivedBytes = 0
    this.#stream?.discard()
    if (this.#isPaused) this.#call?.resume()
  }

  abort(): void {
    this.#chunks = []
    this.#stream?.discard()
    if (this.#isOver) return
    this.#end()
    this.#call?.abort()
  }

  #collect(bytes: Uint8Array): void {
    this.#chunks.push(bytes)
    if (this.#receivedBytes <= this.#maxBytes) return
    this.abort()
    this.#resolve({ status: this.#status, header: this.#header, text: undefined })
  }

  /** One timer serves many chunks, so the callback computes the time since the last chunk. */
  #checkIdle(): void {
    const { runtime, timeouts } = this.#options
    const idleMs = this.#isPaused ? 0 : runtime.now() - this.#lastActivityAt
    if (idleMs >= timeouts.idle) this.#timeOut('did not send more data', timeouts.idle)
    else this.#cancelIdleTimer = runtime.after(timeouts.idle - idleMs, () => this.#checkIdle())
  }

  #onTotalTimeout(): void {
    // A timeout after the first byte is caused by a long answer or a slow reader.
    const details: FailureDetails = this.#status === 0 ? {} : { isLocalFault: true }
    this.#timeOut('did not finish its answer', this.#options.timeouts.total, details)
  }

  #timeOut(problem: string, ms: number, details: FailureDetails = {}): void {
    const message = `The provider "${this.#options.provider}" ${problem} within ${ms / 1000} seconds.`
    this.#stop(new GatewayError('upstream-timeout', message, details))
  }

  #stop(reason: unknown): void {
    if (this.#isOver) return
    this.#call?.abort()
    this.#fail(reason)
  }

  #fail(reason: unknown): void {
    this.#end()
    if (this.#isPastTerminalEvent) return
    if (this.#stream === undefined) this.#reject(reason)
    else this.#stream.end((receiver) => receiver.onError(reason))
  }

  #end(): void {
    this.#isOver = true
    this.#cancelTotalTimer?.()
    this.#cancelIdleTimer?.()
    this.#unsubscribe?.()
  }
}
