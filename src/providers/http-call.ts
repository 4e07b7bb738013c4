import type { Cancellation } from '../core/async.ts'
import { GatewayError, type FailureDetails } from '../core/errors.ts'
import type { ResponseSource, SourceReceiver, StreamFormat } from '../core/completion.ts'
import type { Runtime, Timeouts, Transport, TransportCall, TransportHandler, TransportRequest } from '../core/ports.ts'
import { joinBytes } from '../core/http.ts'
import { upstreamError, connectError } from '../upstream/attempts.ts'
import type { Connection, PacedStream } from './paced-stream.ts'

export interface HttpCallOptions {
  readonly provider: string
  readonly transport: Transport
  readonly runtime: Pick<Runtime, 'after' | 'now'>
  readonly timeouts: Timeouts
  readonly connectMs: number
  readonly cancellation: Cancellation
  readonly maxBytes: (status: number) => number
  readonly format: StreamFormat | undefined
  readonly streamed: StreamedBody | undefined
}

/** For a response that is passed on as it arrives. Other responses are collected. */
export interface StreamedBody {
  /** The value of the request header. */
  readonly accept: string
  /** True if the response is one, and not, for example, an error. */
  readonly isStream: (status: number, header: ResponseHeader) => boolean
  readonly pace: (connection: Connection) => PacedStream
}

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
  readonly source: ResponseSource
}

const decoder = new TextDecoder()

/** The rest of a body after the terminal event, such as `[DONE]`, is read so that the connection can be reused. */
const MAX_BYTES_PAST_TERMINAL_EVENT = 4 * 1024

export function sendRequest(
  request: TransportRequest,
  options: HttpCallOptions,
): Promise<CompleteResponse | StreamResponse> {
  return new Promise((resolve, reject) => new HttpCall(options, resolve, reject).start(request))
}

class HttpCall implements TransportHandler, ResponseSource {
  readonly #options: HttpCallOptions
  readonly #resolve: (response: CompleteResponse | StreamResponse) => void
  readonly #reject: (reason: unknown) => void
  #call: TransportCall | undefined
  #status = 0
  #header: ResponseHeader = () => undefined
  #chunks: Uint8Array[] = []
  #receivedBytes = 0
  #maxBytes = 0
  #stream: PacedStream | undefined
  #isOver = false
  #isPastTerminalEvent = false
  #lastActivityAt = 0
  #isPaused = false
  #cancelTotalTimer: (() => void) | undefined
  #cancelSilenceTimer: (() => void) | undefined
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
    const { cancellation, timeouts, runtime, transport, streamed } = this.#options
    if (cancellation.isCanceled) return this.#reject(cancellation.reason)
    this.#cancelTotalTimer = runtime.after(timeouts.totalMs, () => this.#onTotalTimeout())
    if (streamed !== undefined) {
      const onFirstByteTimeout = (): void => this.#timeOut('did not begin to respond', timeouts.firstByteMs)
      this.#cancelSilenceTimer = runtime.after(timeouts.firstByteMs, onFirstByteTimeout)
    }
    this.#unsubscribe = cancellation.onCancel(() => this.#stop(cancellation.reason))
    this.#call = transport(request, this)
  }

  onHead(status: number, header: ResponseHeader): void {
    const { streamed, maxBytes, timeouts, runtime } = this.#options
    this.#status = status
    this.#header = header
    this.#maxBytes = maxBytes(status)
    this.#cancelSilenceTimer?.()
    if (streamed?.isStream(status, header) !== true) return
    this.#stream = streamed.pace({
      pauseReading: () => this.#call?.pause(),
      resumeReading: () => {
        if (!this.#isPaused && !this.#isOver) this.#call?.resume()
      },
    })
    this.#lastActivityAt = runtime.now()
    this.#cancelSilenceTimer = runtime.after(timeouts.idleMs, () => this.#checkIdle())
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
      return this.#fail(upstreamError(provider, 'did not complete its response', cause))
    }
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

  /** One timer serves many chunks, because a timer per chunk would be slower. */
  #checkIdle(): void {
    const { runtime, timeouts } = this.#options
    const idleMs = this.#isPaused ? 0 : runtime.now() - this.#lastActivityAt
    if (idleMs >= timeouts.idleMs) this.#timeOut('did not send more data', timeouts.idleMs)
    else this.#cancelSilenceTimer = runtime.after(timeouts.idleMs - idleMs, () => this.#checkIdle())
  }

  #onTotalTimeout(): void {
    // After the response headers, a long response or a slow reader can cause the timeout.
    const details: FailureDetails = this.#status === 0 ? {} : { isLocalFault: true }
    this.#timeOut('did not finish its response', this.#options.timeouts.totalMs, details)
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
    this.#cancelSilenceTimer?.()
    this.#unsubscribe?.()
  }
}
