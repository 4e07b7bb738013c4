import type { Bill } from '../billing/bill.ts'
import { GatewayError } from '../core/errors.ts'
import { chain, type MaybePromise } from '../core/async.ts'
import type { StreamWriter } from '../formats/format.ts'
import type { UpstreamStream } from '../upstream/upstream-stream.ts'
import { EventBuffer } from '../replay/event-buffer.ts'
import { billFor, billForIncomplete, BillMetrics, expectedBill } from './charge.ts'
import { asFailure, canceledError, release, settle } from './settle.ts'
import { isBackground, type Answered, type RequestOutcome } from './exchange.ts'
import {
  answerHeaders,
  baseHeaders,
  requestsJsonByInstruction,
  isRecorded,
  loadJsonUnwrapper,
  storeTurn,
  storingProvider,
  STREAM_HEADERS,
} from './response.ts'
import type { SettleInBackground } from './background.ts'
import type { Services } from './services.ts'
import { eventSinkOf } from './event-sink.ts'

/** Begins the response and forwards the stream until it ends, fails, or has no readers left. */
export function respondWithStream(
  answered: Answered,
  stream: UpstreamStream,
  services: Services,
): MaybePromise<undefined> {
  const begin = (settleLater?: SettleInBackground): undefined =>
    new StreamAnswer(answered, stream, services, settleLater).begin()
  if (!isBackground(answered.prompt) || storingProvider(answered) === undefined) return begin()
  return import('./rare-stages.ts').then((stages) => begin(stages.settleInBackground))
}

/** One streamed answer from its first event to its settlement. */
class StreamAnswer {
  readonly #answered: Answered
  readonly #stream: UpstreamStream
  readonly #services: Services
  readonly #buffer: EventBuffer
  readonly #isRecorded: boolean
  /** Present for a response that the vendor generates even if its stream fails. */
  readonly #settleLater: SettleInBackground | undefined
  #isOver = false
  #isResponseRegistered = false

  constructor(answered: Answered, stream: UpstreamStream, services: Services, settleLater?: SettleInBackground) {
    this.#answered = answered
    this.#stream = stream
    this.#services = services
    this.#settleLater = settleLater
    this.#isRecorded = isRecorded(answered, services)
    const canHaveFollowers = answered.idempotencyClaim !== undefined || answered.plan.keeper?.share !== undefined
    const isStored = this.#isRecorded || canHaveFollowers
    this.#buffer = new EventBuffer(isStored ? services.recordings.reserveCapacity(answered.key.id) : undefined)
  }

  begin(): undefined {
    const answered = this.#answered
    const { sink, idempotencyClaim, isDetached, cancellation } = answered
    const headers = Object.assign(answerHeaders(expectedBill(answered), answered.ignoredFields), STREAM_HEADERS)
    sink.begin(200, Object.assign(baseHeaders(answered.id, answered.reservation.rate), headers))
    const leave = this.#buffer.attachOriginal(eventSinkOf(answered, this.#services))
    answered.onDisconnect = leave
    idempotencyClaim?.share(headers, this.#buffer)
    this.#share()
    if (isDetached) this.#detach(leave)
    this.#buffer.onDemandChange = (isWanted) => (isWanted ? this.#stream.resume() : this.#stream.pause())
    this.#stream.attach({
      onChunk: (chunk) => {
        this.#register()
        this.#buffer.push(chunk)
      },
      onComplete: () => this.#guard(() => this.#end()),
      onError: (error) => this.#guard(() => this.#fail(error)),
    })
    cancellation.onCancel(() => this.#guard(() => this.#abandon()))
  }

  /** Lets identical requests follow this stream. */
  #share(): void {
    const { plan, format, subscribers } = this.#answered
    const buffer = this.#buffer
    if (!buffer.isStored) return
    plan.keeper?.share?.({
      metadata: { dialect: format.dialect },
      ended: buffer.ended,
      follow: (sink) => buffer.follow(0, sink),
      summary: () => ({ usage: { ...this.#stream.translator.usage } }),
      subscribers,
    })
  }

  /**
   * Ends the stream with an error if `end` throws. Otherwise, the caller would wait indefinitely and the request would
   * never be settled.
   */
  #guard(end: () => void): void {
    try {
      end()
    } catch (cause) {
      const failure = asFailure(cause)
      this.#isOver = true
      void release(this.#answered, { status: 200, failure }, this.#services)
      this.#buffer.finish(this.#writeFailure(failure), false)
    }
  }

  /**
   * Lets the stream continue after its caller disconnects. A connected caller that reads slowly still pauses the
   * stream.
   */
  #detach(leave: () => void): void {
    if (this.#answered.isDisconnected) this.#buffer.drain()
    this.#answered.onDisconnect = () => {
      leave()
      this.#buffer.drain()
    }
    this.#services.detached.add({
      end: () => this.#answered.cancellation.cancel(new Error('The gateway is closing.')),
      ended: this.#buffer.ended,
    })
  }

  /** Registers the stream under the id of the answer, by which clients can resume it. */
  #register(): void {
    const { format, key, subscribers, isDetached } = this.#answered
    const id = this.#stream.translator.answerId
    if (id !== undefined && this.#settleLater !== undefined && !this.#isResponseRegistered) this.#registerResponse(id)
    if (!this.#isRecorded || id === undefined || format.answerId === undefined) return
    this.#services.recordings.register(this.#buffer, {
      owner: key.id,
      id: format.answerId(id),
      subscribers,
      isDetached,
    })
  }

  /** Registers a background response under its id, so that clients can retrieve it before its stream ends. */
  #registerResponse(id: string): void {
    this.#isResponseRegistered = true
    const [answered, { turns, observers }] = [this.#answered, this.#services]
    const report = (cause: unknown): void =>
      observers.reportFailure('a background response could not be registered under its id', cause)
    turns.storeProvider(answered.key, [id], storingProvider(answered) ?? '').catch(report)
  }

  #end(): void {
    if (!requestsJsonByInstruction(this.#answered)) return this.#complete()
    loadJsonUnwrapper()
      .then(({ unwrapJson }) => unwrapJson(this.#stream.translator.completion()))
      .then(
        () => this.#guard(() => this.#complete()),
        (error: unknown) => this.#guard(() => this.#fail(error)),
      )
  }

  #complete(): void {
    const { translator } = this.#stream
    const bill = billFor(this.#answered, translator, this.#services.meter)
    const closingEvents = this.#writer.end(new BillMetrics(bill))
    this.#finish(bill, { status: 200, completion: () => translator.completion() }, () => {
      this.#buffer.finish(translator.write(closingEvents), true)
      void storeTurn(this.#answered, closingEvents.at(-1)?.data, this.#services)
    })
  }

  #fail(error: unknown): void {
    // When the last reader disconnects, the upstream call fails before `onCancel` runs.
    if (this.#answered.cancellation.isCanceled) return this.#abandon()
    const failure = asFailure(error)
    if (this.#endIfContinued(failure)) return
    // A stream that fails before its first content is billed as a failed request.
    const bill = this.#stream.translator.hasOutput ? this.#partialBill() : undefined
    this.#finish(bill, { status: 200, failure }, () => this.#buffer.finish(this.#writeFailure(failure), false))
  }

  #abandon(): void {
    if (this.#isOver) return
    this.#stream.abort()
    if (this.#endIfContinued(generationStopped())) return
    this.#finish(this.#partialBill(), { status: 499, failure: canceledError() }, () => {
      this.#buffer.finish(this.#writeFailure(generationStopped()), false)
    })
  }

  /** Settles the request later if the vendor continues to generate the response. Otherwise, returns false. */
  #endIfContinued(failure: GatewayError): boolean {
    const { translator } = this.#stream
    const id = translator.answerId
    if (id === undefined || this.#settleLater === undefined) return false
    if (this.#isOver) return true
    const streamedBill = translator.hasOutput ? this.#partialBill() : undefined
    this.#isOver = true
    void this.#settleLater(this.#answered, { id, streamedBill }, this.#services)
    this.#buffer.finish(this.#writeFailure(failure), false)
    return true
  }

  /**
   * Settles the request before writing the last events, so that the request is settled by the time a client reads them.
   */
  #finish(bill: Bill | undefined, outcome: RequestOutcome, write: () => void): void {
    if (this.#isOver) return
    this.#isOver = true
    const [answered, services] = [this.#answered, this.#services]
    void chain(
      bill === undefined ? release(answered, outcome, services) : settle(answered, { ...outcome, bill }, services),
      write,
    )
  }

  #partialBill(): Bill {
    const { translator } = this.#stream
    const createBill = translator.hasFinishReason ? billFor : billForIncomplete
    return createBill(this.#answered, translator, this.#services.meter)
  }

  get #writer(): StreamWriter {
    return this.#stream.translator.writer
  }

  #writeFailure(failure: GatewayError): string {
    const { format, id } = this.#answered
    const events = this.#writer.fail?.(failure) ?? [format.writeFailureEvent(failure, id)]
    return this.#stream.translator.write(events)
  }
}

function generationStopped(): GatewayError {
  return new GatewayError(
    'cancelled',
    'The generation was stopped because its caller disconnected or the gateway was closed. Send X-Svc-Detach: true with a request that must continue without a reader.',
  )
}
