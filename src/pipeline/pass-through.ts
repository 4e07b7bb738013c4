import type { Bill } from '../billing/bill.ts'
import type { SourceReceiver } from '../core/answer.ts'
import { GatewayError } from '../core/errors.ts'
import type { HeaderRecord } from '../core/http.ts'
import { isJsonObject, type JsonObject } from '../core/json.ts'
import { times, ZERO, type NanoUsd } from '../core/money.ts'
import type { PassedAnswer } from '../core/ports.ts'
import { failureStatus } from '../formats/failures.ts'
import type { Reservation, WaitForStore } from '../governance/reservation.ts'
import { joinBytes } from '../http/body.ts'
import { brokenUpstream, tooSlow } from '../upstream/upstream-failure.ts'
import { PASSTHROUGH } from './charge.ts'
import type { Authenticated, Resolved } from './exchange.ts'
import { asFailure, callerLeft, settle } from './settle.ts'
import { answerHeaders, baseHeaders } from './response.ts'
import { marginOf } from './parse-request.ts'
import { parsePassthrough, priceByAnswer, type PassRequest, type PassTarget } from './passthrough-request.ts'
import type { Services } from './services.ts'
import { waitForStore } from './reserve.ts'

type Passing = Authenticated & { readonly resolved: Resolved; readonly reservation: Reservation }

/**
 * Calls an endpoint that the gateway does not read: the body and the answer pass byte for byte. The request takes a place
 * of the request limit and reserves its price. It is tried once, because it may be neither cheap nor repeatable.
 */
export async function passThrough(
  authenticated: Authenticated,
  target: PassTarget,
  services: Services,
): Promise<undefined> {
  const request = await parsePassthrough(authenticated, target, services)
  const { resolved, price } = request
  authenticated.resolved = resolved
  authenticated.margin = marginOf(services, authenticated.key, resolved.name)
  const worst = times(price, authenticated.margin)
  const wait: WaitForStore = (given) => waitForStore(authenticated, given, services)
  const quote = { promptTokens: 0, outputTokens: 0, cost: () => worst }
  const reservation = await services.ledger.reserve(authenticated.key, quote, wait)
  const exchange: Passing = Object.assign(authenticated, { resolved, reservation })
  const passed = await callVendor(exchange, request, services).catch(async (error: unknown) => {
    if (GatewayError.is(error) && failureStatus(error) === 404) await target.forget?.(exchange.key)
    throw error
  })
  const isRead = target.keep !== undefined || (request.endpoint.finalPrice !== undefined && isJson(passed))
  const sending = { exchange, request, passed, services }
  return isRead ? sendWhole(sending, target) : sendStream(sending)
}

/** A caller who leaves while the vendor works pays the price: the vendor is paid, too. */
async function callVendor(exchange: Passing, request: PassRequest, services: Services): Promise<PassedAnswer> {
  const { cancellation } = exchange
  const { runtime, timeouts } = services
  const total = leftOf(exchange, services)
  const firstByte = request.isStreamed ? timeouts.firstByte : total
  if (cancellation.isCancelled) throw callerLeft(cancellation.reason)
  try {
    const passed = await request.provider.passThrough?.({
      ...request.call,
      get signal() {
        return cancellation.signal
      },
      cancellation,
      runtime,
      timeouts: { ...timeouts, total, firstByte },
    })
    if (passed !== undefined) return passed
    throw brokenUpstream(request.provider.name, 'has no such endpoint')
  } catch (error) {
    if (!cancellation.isCancelled) throw error
    const failure = callerLeft(error)
    await settle(exchange, { status: LEFT, failure, bill: billOf(exchange, request.price) }, services)
    throw failure
  }
}

/** The status in the records of a request whose caller left. */
const LEFT = 499

interface Sending {
  readonly exchange: Passing
  readonly request: PassRequest
  readonly passed: PassedAnswer
  readonly services: Services
}

/** Sends an answer as it comes. It is settled before the caller sees its end. */
function sendStream(sending: Sending): Promise<undefined> {
  const { exchange, request, passed, services } = sending
  const { sink, cancellation } = exchange
  const { status, source } = passed
  const bill = billOf(exchange, request.price)
  sink.begin(status, headersOf(exchange, passed, bill))
  sink.onDrain(() => source.resume())
  return new Promise((resolve) => {
    const end = async (failure: GatewayError | undefined): Promise<void> => {
      const outcome = failure === undefined ? { status } : { status: cancellation.isCancelled ? LEFT : status, failure }
      await settle(exchange, { ...outcome, bill }, services)
      if (failure === undefined) sink.end()
      else sink.destroy()
      resolve(undefined)
    }
    readBytesOf(sending, {
      onBytes: (bytes) => {
        if (!sink.write(bytes)) source.pause()
      },
      onEnd: () => void end(undefined),
      onError: (error) => void end(cancellation.isCancelled ? callerLeft(error) : asFailure(error)),
    })
  })
}

/** Sends an answer when it has been read whole. Where that fails, the operator pays the vendor, and the caller nothing. */
async function sendWhole(sending: Sending, target: PassTarget): Promise<undefined> {
  const { exchange, request, passed, services } = sending
  const { provider } = request
  const { status } = passed
  try {
    const bytes = await collect(sending)
    const answer = parseAnswer(bytes, provider.name)
    await target.keep?.(exchange.key, provider, answer)
    const bill = billOf(exchange, finalPriceOf(request, answer, services))
    await settle(exchange, { status, bill }, services)
    exchange.sink.whole(status, headersOf(exchange, passed, bill), bytes)
  } catch (error) {
    const hasLeft = exchange.cancellation.isCancelled
    const failure = hasLeft ? callerLeft(error) : asFailure(error)
    const bill = billOf(exchange, request.price)
    const status = hasLeft ? LEFT : failureStatus(failure)
    const owed = hasLeft ? bill : { ...bill, theoretical: ZERO, billed: ZERO }
    await settle(exchange, { status, failure, bill: owed }, services)
    throw failure
  }
  return undefined
}

/** Where the operator's function fails, the caller gets the answer that the vendor has charged, and pays the price. */
function finalPriceOf(request: PassRequest, answer: JsonObject, { observers }: Services): NanoUsd {
  try {
    return priceByAnswer(request, answer)
  } catch (cause) {
    observers.failed('finalPrice failed, and the price was billed', cause)
    return request.price
  }
}

/** Maximum size of an answer that is read before it is sent, in bytes. */
const MAX_READ_BYTES = 32 * 1024 * 1024

function collect(sending: Sending): Promise<Uint8Array> {
  const { source } = sending.passed
  const pieces: Uint8Array[] = []
  let size = 0
  return new Promise((resolve, reject) => {
    readBytesOf(sending, {
      onBytes: (bytes) => {
        size += bytes.byteLength
        if (size <= MAX_READ_BYTES) return void pieces.push(bytes)
        source.abort()
        reject(brokenUpstream(sending.request.provider.name, 'sent an answer larger than 32 MiB'))
      },
      onEnd: () => resolve(joinBytes(pieces, size)),
      onError: reject,
    })
  })
}

/** Reads an answer to its end. A provider of the user's own may ignore that the caller has left or that the time is over. */
function readBytesOf({ exchange, passed, request, services }: Sending, receiver: Omit<SourceReceiver, 'onStep'>): void {
  const { cancellation } = exchange
  const { source } = passed
  if (request.provider.endsCalls === true) return source.read({ ...receiver, onStep: () => {} })
  let isOver = false
  const end = (deliver: () => void): void => {
    if (isOver) return
    isOver = true
    cancelTimer()
    unsubscribe()
    deliver()
  }
  const fail = (error: unknown): void => end(() => receiver.onError(error))
  const stop = (reason: unknown): void => {
    fail(reason)
    source.abort()
  }
  const left = leftOf(exchange, services)
  const cancelTimer = services.runtime.after(left, () => stop(tooSlow(request.provider.name, services.timeouts.total)))
  let unsubscribe = (): void => {}
  source.read({
    onBytes: (bytes) => {
      if (!isOver) receiver.onBytes(bytes)
    },
    onStep: () => {},
    onEnd: () => end(() => receiver.onEnd()),
    onError: fail,
  })
  if (!isOver) unsubscribe = cancellation.onCancel(() => stop(cancellation.reason))
}

/** Milliseconds until the deadline of the request. */
function leftOf({ startedAt }: Authenticated, { runtime, timeouts }: Services): number {
  return Math.max(1, timeouts.total - (runtime.now() - startedAt))
}

function parseAnswer(bytes: Uint8Array, provider: string): JsonObject {
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(bytes))
    if (isJsonObject(value)) return value
  } catch {
    // The error below says it.
  }
  throw brokenUpstream(provider, 'sent an answer that is not a JSON object')
}

function isJson({ header }: PassedAnswer): boolean {
  return /^application\/json\b/i.test(header('content-type') ?? '')
}

/** Only what describes the body comes from the vendor. */
function headersOf({ id, reservation }: Passing, { header }: PassedAnswer, bill: Bill): HeaderRecord {
  const disposition = header('content-disposition')
  return {
    ...baseHeaders(id, reservation.rate),
    ...answerHeaders(bill, []),
    'content-type': header('content-type') ?? 'application/octet-stream',
    ...(disposition !== undefined && { 'content-disposition': disposition }),
    // A vendor's file must not run as a page of the gateway's origin.
    'x-content-type-options': 'nosniff',
    'cache-control': 'no-store',
  }
}

function billOf({ margin }: Passing, price: NanoUsd): Bill {
  return {
    originalTokens: 0,
    optimizedTokens: 0,
    completionTokens: 0,
    theoretical: price,
    actual: price,
    billed: times(price, margin),
    margin,
    cache: 'MISS',
    strategy: PASSTHROUGH,
    estimated: false,
  }
}
