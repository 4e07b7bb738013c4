import type { Bill } from '../billing/bill.ts'
import { type ResponseSource, type Completion, type StreamChunk, toStreamChunks } from '../core/completion.ts'
import { chain, type MaybePromise } from '../core/async.ts'
import { GatewayError } from '../core/errors.ts'
import { NO_USAGE } from '../core/money.ts'
import type { Route, Runtime } from '../core/ports.ts'
import { EventBuffer } from '../streams/event-buffer.ts'
import { ResponseTranslator } from '../upstream/response-translator.ts'
import { upstreamError, isResponseSource } from '../upstream/attempts.ts'
import { createChunkSource, createReplaySource, UpstreamStream } from '../upstream/upstream-stream.ts'
import { billFor, billForIncomplete } from './charge.ts'
import { eventSinkOf, STREAM_HEADERS } from './event-sink.ts'
import { estimateHeaders } from './estimate.ts'
import {
  type ModelResponse,
  type Responded,
  type Called,
  MAX_HEADER_WAIT_MS,
  type OpenedStream,
  type Planned,
} from './exchange.ts'
import { endWithoutResponse, settle } from './settle.ts'
import type { Services } from './services.ts'
import { baseHeaders } from './response-headers.ts'
import { asFailure, canceledError } from './failures.ts'
import { createWriteContext, requestsJsonByInstruction, type WrittenExchange } from './write-context.ts'
import type { RequestOutcome } from './finished-request.ts'
import type { ResponseStop, StoppableWriter } from './plugin-run.ts'
import type { PromptCounts } from './optimization.ts'
import type { StreamObserver } from './hooks.ts'
import { metricsWriter } from './svc-metrics.ts'

export function createStream(
  planned: Planned,
  { provider }: Route,
  response: AsyncIterable<StreamChunk> | ResponseSource,
  { runtime }: Pick<Services, 'runtime'>,
): UpstreamStream {
  const { format, prompt } = planned
  const source = isResponseSource(response) ? response : createChunkSource(response, provider.name)
  const translator = new ResponseTranslator({
    format: source.format,
    writer: createWriter(planned, runtime),
    mayForward:
      planned.plugins?.changesResponse !== true &&
      source.format?.dialect === format.dialect &&
      (prompt.settings.choices ?? 1) === 1,
    isNumbered: format.responseId !== undefined,
    toError: (problem, cause) => upstreamError(provider.name, problem, cause),
  })
  return new UpstreamStream(source, translator)
}

/** For a stream whose headers leave before it is known whether the request is a cache hit. */
export async function openLater(
  counts: PromptCounts,
  callLater: () => Promise<Called>,
): Promise<Extract<ModelResponse, { readonly kind: 'opening' }>> {
  await counts.prepareCounts?.()
  const opening = callLater().then(openedOf)
  // `respond` handles the error, but runs later.
  opening.catch(() => {})
  return { kind: 'opening', opening }
}

function openedOf({ response, route, ignoredFields }: Called): MaybePromise<OpenedStream> {
  if (response.kind === 'whole') throw new Error('The upstream answered a stream request with a whole completion.')
  return response.kind === 'streamed' ? { stream: response.stream, route, ignoredFields } : response.opening
}

/** Resolves when the stream opens or when the headers must leave. */
export function waitForStream(
  opening: Promise<unknown>,
  { headersDueAt }: Pick<Planned, 'headersDueAt'>,
  { after, now }: Pick<Runtime, 'after' | 'now'>,
): Promise<void> {
  const waitMs = headersDueAt === undefined ? MAX_HEADER_WAIT_MS : Math.max(0, headersDueAt - now())
  return new Promise((resolve, reject) => {
    // A stream without content opens at the same time.
    const cancel = after(waitMs, () => after(0, resolve))
    opening.finally(cancel).then(() => resolve(), reject)
  })
}

type StreamedExchange = WrittenExchange & Pick<Planned, 'format'>

function createWriter(exchange: StreamedExchange, runtime: Pick<Runtime, 'now'>): StoppableWriter {
  const writer = exchange.format.createStreamWriter(createWriteContext(exchange, runtime))
  return exchange.plugins?.createWriter(writer) ?? writer
}

export function replayAsStream(
  response: Completion | ResponseSource,
  planned: StreamedExchange,
  { runtime }: { readonly runtime: Pick<Runtime, 'after' | 'now'> },
): UpstreamStream {
  const source = 'read' in response ? response : createReplaySource(toStreamChunks(response))
  const stream = createChunkStream(source, planned, runtime)
  // The listener of the stream receives the error, too.
  stream.open({ after: runtime.after }, 0).catch(() => {})
  return stream
}

function createChunkStream(
  source: ResponseSource,
  planned: StreamedExchange,
  runtime: Pick<Runtime, 'now'>,
): UpstreamStream {
  const translator = new ResponseTranslator({
    writer: createWriter(planned, runtime),
    isNumbered: planned.format.responseId !== undefined,
    toError: (problem) => new GatewayError('upstream', INCOMPLETE_REPLAY, { cause: problem }),
  })
  return new UpstreamStream(source, translator)
}

const INCOMPLETE_REPLAY = 'The stored or shared answer is incomplete. Send the request again.'

export function respondWithStream(
  responded: Responded,
  response: Exclude<ModelResponse, { readonly kind: 'whole' }>,
  services: Services,
): undefined {
  if (response.kind === 'streamed') return new StreamResponse(responded, response.stream, services).begin()
  const emptyStream = createChunkStream(createReplaySource([]), responded, services.runtime)
  new StreamResponse(responded, emptyStream, services).beginBefore(response.opening)
}

class StreamResponse {
  readonly #responded: Responded
  /** Replaced when a provider opens its stream after the response has begun. */
  #stream: UpstreamStream
  readonly #services: Services
  readonly #buffer: EventBuffer
  #observers: readonly StreamObserver[] = []
  #isOver = false
  /** True if a plugin settles the request later. */
  #isTakenOver = false

  constructor(responded: Responded, stream: UpstreamStream, services: Services) {
    this.#responded = responded
    this.#stream = stream
    this.#services = services
    const isStored =
      responded.plan.keeper?.share !== undefined ||
      services.hooks.storesEvents.some((storesEvents) => storesEvents(responded, services))
    this.#buffer = new EventBuffer(isStored ? services.eventCapacity.reserve(responded.caller.scope) : undefined)
  }

  begin(): undefined {
    this.#sendHeaders()
    this.#attach()
  }

  /** A failure of all providers is then an error event. */
  beginBefore(opening: Promise<OpenedStream>): void {
    this.#sendHeaders()
    opening.then(
      ({ stream, ...found }) =>
        this.#guard(() => {
          Object.assign(this.#responded, found)
          this.#stream = stream
          if (!this.#buffer.hasDemand) stream.pause()
          this.#attach()
        }),
      (error: unknown) => this.#guard(() => this.#failUnopened(error)),
    )
  }

  #sendHeaders(): void {
    const responded = this.#responded
    const { sink, isDetached } = responded
    const headers = Object.assign(estimateHeaders(responded, this.#services), STREAM_HEADERS)
    sink.begin(200, Object.assign(baseHeaders(responded.id, responded.grant.rate), headers))
    const leave = this.#buffer.attachOriginal(eventSinkOf(responded, this.#services))
    responded.onDisconnect = leave
    const stream = { headers, buffer: this.#buffer }
    this.#observers = this.#services.hooks.onStream.flatMap(
      (onStream) => onStream(responded, stream, this.#services) ?? [],
    )
    if (isDetached) this.#detach(leave)
    this.#buffer.onDemandChange = (hasDemand) => (hasDemand ? this.#stream.resume() : this.#stream.pause())
  }

  #attach(): void {
    this.#share()
    this.#stream.attach({
      onChunk: (chunk) => {
        this.#observe()
        this.#buffer.push(chunk)
      },
      onComplete: () => this.#guard(() => this.#end()),
      onError: (error) => this.#guard(() => this.#fail(error)),
    })
    this.#responded.cancellation.onCancel(() => this.#guard(() => this.#abandon()))
    const writer: StoppableWriter = this.#stream.translator.writer
    if (!('onStop' in writer)) return
    writer.onStop = () => this.#guard(() => this.#stopIfRequested())
    this.#guard(() => this.#stopIfRequested())
  }

  get #requestedStop(): ResponseStop | undefined {
    const writer: StoppableWriter = this.#stream.translator.writer
    return writer.stop
  }

  /** Ends the response because a plugin has ended it. The upstream has charged for what it generated until then. */
  #stopIfRequested(): boolean {
    const stop = this.#requestedStop
    if (stop === undefined || this.#isOver) return stop !== undefined
    this.#stream.abort()
    const bill = this.#partialBill()
    if ('failure' in stop) {
      const { failure } = stop
      this.#finish(bill, { status: 200, failure }, () => this.#buffer.finish(this.#writeFailure(failure), false))
    } else this.#finishWithBill(bill, { status: 200 }, true)
    return true
  }

  #share(): void {
    const { plan, format, subscribers } = this.#responded
    const buffer = this.#buffer
    if (!buffer.isStored) return
    plan.keeper?.share?.({
      metadata: { dialect: format.dialect },
      ended: buffer.ended,
      follow: (sink) => buffer.follow(0, sink),
      summary: () => {
        const { models: _models, ...counts } = this.#stream.translator.usage ?? NO_USAGE
        return { usage: counts }
      },
      subscribers,
    })
  }

  /** If `end` throws, the caller would otherwise wait indefinitely and the request would not be settled. */
  #guard(end: () => void): void {
    try {
      end()
    } catch (cause) {
      const failure = asFailure(cause)
      this.#isOver = true
      void endWithoutResponse(this.#responded, { status: 200, failure }, this.#services)
      this.#buffer.finish(this.#writeFailure(failure), false)
    }
  }

  /** A connected caller that reads slowly still pauses the stream. */
  #detach(leave: () => void): void {
    if (this.#responded.isDisconnected) this.#buffer.drain()
    this.#responded.onDisconnect = () => {
      leave()
      this.#buffer.drain()
    }
    this.#services.detached.add({
      end: () => this.#responded.cancellation.cancel(new Error('The gateway is closing.')),
      ended: this.#buffer.ended,
    })
  }

  #observe(): void {
    const id = this.#stream.translator.responseId
    if (id !== undefined) for (const observer of this.#observers) observer.onChunk?.(id)
  }

  #end(): void {
    if (this.#stopIfRequested()) return
    if (!requestsJsonByInstruction(this.#responded)) return this.#complete()
    import('./adapt-response.ts')
      .then(({ unwrapJson }) => unwrapJson(this.#stream.translator.completion()))
      .then(
        () => this.#guard(() => this.#complete()),
        (error: unknown) => this.#guard(() => this.#fail(error)),
      )
  }

  #complete(): void {
    const { translator } = this.#stream
    const bill = billFor(this.#responded, translator, this.#services.meter)
    // A stream without a finish reason may lack its last part, so it is not served to other requests.
    const isWhole = translator.hasFinishReason
    const outcome = isWhole ? { status: 200, completion: () => translator.completion() } : { status: 200 }
    this.#finishWithBill(bill, outcome, isWhole)
  }

  #finishWithBill(bill: Bill, outcome: RequestOutcome, isWhole: boolean): void {
    const { translator } = this.#stream
    const closingEvents = translator.writer.end(metricsWriter(bill, this.#services))
    this.#finish(bill, outcome, () => {
      this.#buffer.finish(translator.write(closingEvents), isWhole)
      const lastData = closingEvents.at(-1)?.data
      for (const observer of this.#observers) observer.onComplete?.(lastData)
    })
  }

  #fail(error: unknown): void {
    // A cancellation can make the upstream call fail before the `onCancel` listener of this stream runs.
    if (this.#responded.cancellation.isCanceled) return this.#abandon()
    const failure = asFailure(error)
    if (this.#endIfContinued(failure)) return
    // A stream that fails without output is billed as a failed request.
    const bill = this.#stream.translator.hasOutput ? this.#partialBill() : undefined
    this.#finish(bill, { status: 200, failure }, () => this.#buffer.finish(this.#writeFailure(failure), false))
  }

  /** Bills like a request that ends before its response begins. */
  #failUnopened(error: unknown): void {
    const { isCanceled } = this.#responded.cancellation
    const failure = isCanceled ? canceledError(error) : asFailure(error)
    this.#finish(undefined, { status: isCanceled ? 499 : 200, failure }, () => {
      this.#buffer.finish(this.#writeFailure(isCanceled ? generationStoppedError() : failure), false)
    })
  }

  #abandon(): void {
    if (this.#isOver) return
    this.#stream.abort()
    if (this.#endIfContinued(generationStoppedError())) return
    this.#finish(this.#partialBill(), { status: 499, failure: canceledError() }, () => {
      this.#buffer.finish(this.#writeFailure(generationStoppedError()), false)
    })
  }

  /** Returns true if the request is settled later, because the vendor continues to generate the response. */
  #endIfContinued(failure: GatewayError): boolean {
    const { translator } = this.#stream
    const id = translator.responseId
    if (id === undefined) return false
    if (this.#isOver) return this.#isTakenOver
    const streamedBill = (): Bill | undefined => (translator.hasOutput ? this.#partialBill() : undefined)
    this.#isTakenOver = this.#observers.some((observer) => observer.takeOver?.(id, streamedBill) === true)
    if (!this.#isTakenOver) return false
    this.#isOver = true
    this.#buffer.finish(this.#writeFailure(failure), false)
    return true
  }

  /** Writes the last events after the settlement or, if the store is slow, after its timeout. */
  #finish(bill: Bill | undefined, outcome: RequestOutcome, write: () => void): void {
    if (this.#isOver) return
    this.#isOver = true
    const [responded, services] = [this.#responded, this.#services]
    void chain(
      bill === undefined
        ? endWithoutResponse(responded, outcome, services)
        : settle(responded, { ...outcome, bill }, services),
      write,
    )
  }

  #partialBill(): Bill {
    const { translator } = this.#stream
    const createBill = translator.hasFinishReason ? billFor : billForIncomplete
    return createBill(this.#responded, translator, this.#services.meter)
  }

  #writeFailure(failure: GatewayError): string {
    const { format, id } = this.#responded
    const { translator } = this.#stream
    return translator.write(translator.writer.fail?.(failure) ?? [format.writeFailureEvent(failure, id)])
  }
}

function generationStoppedError(): GatewayError {
  return new GatewayError(
    'cancelled',
    'The generation was stopped because its caller disconnected or the gateway was closed. Send X-Svc-Detach: true with a request that must continue without a reader.',
  )
}
