import { checkPayer } from '../../upstream/attempts.ts'
import type { Bill } from '../../billing/bill.ts'
import type { SourceReceiver } from '../../core/completion.ts'
import { failureStatus, GatewayError } from '../../core/errors.ts'
import { joinBytes, type HeaderRecord } from '../../core/http.ts'
import { isJsonObject, type JsonObject } from '../../core/json.ts'
import { fromDollars, type NanoUsd, scale, ZERO } from '../../core/money.ts'
import type { PassthroughResponse } from '../../core/ports.ts'
import { timeoutError, upstreamError } from '../../upstream/attempts.ts'
import { forCaller, PASSTHROUGH } from '../../kernel/charge.ts'
import { type Authenticated, type ResolvedModel } from '../../kernel/exchange.ts'
import { type Granted, reserveQuote } from '../../kernel/reserve.ts'
import { marginOf } from '../../kernel/parse-request.ts'
import { type ParsedPassthrough, parsePassthrough, type PassthroughTarget } from './parse-passthrough.ts'
import { settle } from '../../kernel/settle.ts'
import { routeName } from '../../kernel/resolve-model.ts'
import type { Services } from '../../kernel/services.ts'
import { responseHeaders, baseHeaders } from '../../kernel/response-headers.ts'
import { asFailure, canceledError } from '../../kernel/failures.ts'

type ReservedPassthrough = Authenticated & Granted & { readonly resolved: ResolvedModel }

/** Never retries, because a repetition may be expensive or unsafe. */
export async function passThrough(
  authenticated: Authenticated,
  target: PassthroughTarget,
  services: Services,
): Promise<undefined> {
  const request = await parsePassthrough(authenticated, target, services)
  const { resolved, maxPrice, provider } = request
  const isListed = provider.model(request.request.model ?? '') !== undefined
  const route = request.request.model !== undefined && isListed ? resolved.routes[0] : undefined
  for (const checkRequest of services.hooks.checkRequest) {
    await checkRequest(authenticated, services, request.request.model)
  }
  authenticated.resolved = resolved
  authenticated.margin = marginOf(services, authenticated.caller, resolved.name, route)
  const maxCost = scale(maxPrice, authenticated.margin)
  const models = [resolved.name, ...(route === undefined ? [] : [routeName(route)])]
  const quote = { promptTokens: 0, outputTokens: 0, cost: () => maxCost, models }
  const granted = await reserveQuote(authenticated, quote, services)
  const exchange: ReservedPassthrough = Object.assign(authenticated, { resolved, ...granted })
  const vendorResponse = await callVendor(exchange, request, services).catch(async (error: unknown) => {
    if (GatewayError.is(error) && failureStatus(error) === 404) await target.onNotFound?.(exchange.caller.scope)
    throw error
  })
  const mustReadResponse =
    target.onResponse !== undefined || (request.endpoint.finalPriceUsd !== undefined && isJson(vendorResponse))
  const responded = { exchange, request, vendorResponse, services }
  return mustReadResponse ? sendCompleteResponse(responded, target) : sendStream(responded)
}

/** Bills the maximum price if the caller disconnects meanwhile, because the vendor may charge it. */
async function callVendor(
  exchange: ReservedPassthrough,
  request: ParsedPassthrough,
  services: Services,
): Promise<PassthroughResponse> {
  const { cancellation } = exchange
  const { runtime, timeouts } = services
  const total = remainingMs(exchange, services)
  const firstByte = request.isStreamed ? timeouts.firstByteMs : total
  if (cancellation.isCanceled) throw canceledError(cancellation.reason)
  try {
    const caller = exchange.caller.upstream
    checkPayer(request.provider, caller)
    const vendorResponse = await request.provider.passThrough?.({
      caller,
      ...request.call,
      get signal() {
        return cancellation.signal
      },
      cancellation,
      runtime,
      timeouts: { ...timeouts, totalMs: total, firstByteMs: firstByte },
    })
    if (vendorResponse !== undefined) return vendorResponse
    throw upstreamError(request.provider.name, 'has no such endpoint')
  } catch (error) {
    if (!cancellation.isCanceled) throw error
    const failure = canceledError(error)
    const bill = billOf(exchange, request.maxPrice)
    await settle(exchange, { status: failureStatus(failure), failure, bill }, services)
    throw failure
  }
}

interface RespondedPassthrough {
  readonly exchange: ReservedPassthrough
  readonly request: ParsedPassthrough
  readonly vendorResponse: PassthroughResponse
  readonly services: Services
}

async function sendStream(responded: RespondedPassthrough): Promise<undefined> {
  const { exchange, request, vendorResponse, services } = responded
  const { sink, cancellation } = exchange
  const { status, source } = vendorResponse
  const bill = billOf(exchange, request.maxPrice)
  try {
    sink.begin(status, headersOf(responded, bill))
  } catch (error) {
    // The vendor has been paid.
    source.abort()
    await settle(exchange, { status, failure: asFailure(error), bill }, services)
    sink.destroy()
    return undefined
  }
  sink.onDrain(() => source.resume())
  return new Promise((resolve, reject) => {
    const end = async (failure: GatewayError | undefined): Promise<void> => {
      const outcome =
        failure === undefined
          ? { status }
          : { status: cancellation.isCanceled ? failureStatus(failure) : status, failure }
      await settle(exchange, { ...outcome, bill }, services)
      if (failure === undefined) sink.end()
      else sink.destroy()
    }
    let isEnding = false
    const endOnce = (failure: GatewayError | undefined): void => {
      if (isEnding) return
      isEnding = true
      end(failure).then(() => resolve(undefined), reject)
    }
    readBytesOf(responded, {
      onBytes: (bytes) => {
        try {
          if (!sink.write(bytes)) source.pause()
        } catch (error) {
          endOnce(asFailure(error))
          source.abort()
        }
      },
      onEnd: () => endOnce(undefined),
      onError: (error) => endOnce(cancellation.isCanceled ? canceledError(error) : asFailure(error)),
    })
  })
}

/** After a failure, bills the request only if its caller has disconnected. */
async function sendCompleteResponse(responded: RespondedPassthrough, target: PassthroughTarget): Promise<undefined> {
  const { exchange, request, vendorResponse, services } = responded
  const { provider } = request
  const { status } = vendorResponse
  try {
    const bytes = await readResponse(responded)
    const response = parseResponse(bytes, provider.name)
    await target.onResponse?.(exchange.caller.scope, provider, response)
    const bill = billOf(exchange, priceOfResponse(request, response, services))
    await settle(exchange, { status, bill }, services)
    exchange.sink.send(status, headersOf(responded, bill), bytes)
  } catch (error) {
    const isDisconnected = exchange.cancellation.isCanceled
    const failure = isDisconnected ? canceledError(error) : asFailure(error)
    const bill = billOf(exchange, request.maxPrice)
    const finalBill = isDisconnected ? bill : { ...bill, theoretical: ZERO, billed: ZERO }
    await settle(exchange, { status: failureStatus(failure), failure, bill: finalBill }, services)
    throw failure
  }
  return undefined
}

/** Bills the reserved price if `finalPriceUsd` fails, because the vendor has charged for the response. */
function priceOfResponse(
  { endpoint, request, maxPrice }: ParsedPassthrough,
  response: JsonObject,
  { log }: Services,
): NanoUsd {
  try {
    const dollars = endpoint.finalPriceUsd?.(request, response) ?? NaN
    const price = Number.isFinite(dollars) && dollars >= 0 ? fromDollars(dollars) : maxPrice
    return price < maxPrice ? price : maxPrice
  } catch (cause) {
    log.failure('finalPriceUsd failed; the maximum price was billed', cause)
    return maxPrice
  }
}

const MAX_READ_BYTES = 32 * 1024 * 1024

function readResponse(responded: RespondedPassthrough): Promise<Uint8Array> {
  const { source } = responded.vendorResponse
  const pieces: Uint8Array[] = []
  let size = 0
  return new Promise((resolve, reject) => {
    readBytesOf(responded, {
      onBytes: (bytes) => {
        size += bytes.byteLength
        if (size <= MAX_READ_BYTES) return void pieces.push(bytes)
        source.abort()
        reject(upstreamError(responded.request.provider.name, 'sent a response larger than 32 MiB'))
      },
      onEnd: () => resolve(joinBytes(pieces, size)),
      onError: reject,
    })
  })
}

/** Custom providers may ignore the cancellation and the timeout, so both are enforced here as well. */
function readBytesOf(
  { exchange, vendorResponse, request, services }: RespondedPassthrough,
  receiver: Omit<SourceReceiver, 'onChunk'>,
): void {
  const { cancellation } = exchange
  const { source } = vendorResponse
  if (request.provider.endsCalls === true) return source.read({ ...receiver, onChunk: () => {} })
  let hasEnded = false
  const end = (deliver: () => void): void => {
    if (hasEnded) return
    hasEnded = true
    cancelTimer()
    unsubscribe()
    deliver()
  }
  const fail = (error: unknown): void => end(() => receiver.onError(error))
  const stop = (reason: unknown): void => {
    fail(reason)
    source.abort()
  }
  const delay = remainingMs(exchange, services)
  const cancelTimer = services.runtime.after(delay, () =>
    stop(timeoutError(request.provider.name, services.timeouts.totalMs)),
  )
  let unsubscribe = (): void => {}
  source.read({
    onBytes: (bytes) => {
      if (!hasEnded) receiver.onBytes(bytes)
    },
    onChunk: () => {},
    onEnd: () => end(() => receiver.onEnd()),
    onError: fail,
  })
  if (!hasEnded) unsubscribe = cancellation.onCancel(() => stop(cancellation.reason))
}

function remainingMs({ startedAt }: Authenticated, { runtime, timeouts }: Services): number {
  return Math.max(1, timeouts.totalMs - (runtime.now() - startedAt))
}

function parseResponse(bytes: Uint8Array, provider: string): JsonObject {
  try {
    const value: unknown = JSON.parse(new TextDecoder().decode(bytes))
    if (isJsonObject(value)) return value
  } catch {
    // The error below covers both malformed JSON and other JSON values.
  }
  throw upstreamError(provider, 'sent a response that is not a JSON object')
}

function isJson({ header }: PassthroughResponse): boolean {
  return /^application\/json\b/i.test(header('content-type') ?? '')
}

function headersOf({ exchange, vendorResponse, services }: RespondedPassthrough, bill: Bill): HeaderRecord {
  const { id, reservation } = exchange
  const { header } = vendorResponse
  const disposition = header('content-disposition')
  return {
    ...baseHeaders(id, reservation.rate),
    ...responseHeaders(bill, [], services),
    'content-type': header('content-type') ?? 'application/octet-stream',
    ...(disposition !== undefined && { 'content-disposition': disposition }),
    // Browsers must not treat a file of another content type as HTML or a script.
    'x-content-type-options': 'nosniff',
    'cache-control': 'no-store',
  }
}

function billOf({ margin, caller }: ReservedPassthrough, price: NanoUsd): Bill {
  const bill = {
    originalTokens: 0,
    optimizedTokens: 0,
    completionTokens: 0,
    theoretical: price,
    actual: price,
    billed: scale(price, margin),
    margin,
    cache: 'MISS',
    strategy: PASSTHROUGH,
    isEstimated: false,
  } as const
  return forCaller({ caller }, bill)
}
