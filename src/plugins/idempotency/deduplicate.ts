import { sha256 } from '#hash'
import { digestJson, digestJsonInSteps, digestWithPauses } from '../../core/cache.ts'
import type { MaybePromise } from '../../core/async.ts'
import { failureStatus, GatewayError } from '../../core/errors.ts'
import type { ResponseSink } from '../../core/http.ts'
import { asObject, asString, type JsonObject, parseObject } from '../../core/json.ts'
import type { EventSink } from '../../streams/event-buffer.ts'
import {
  type ReplayedResponse,
  type RequestClaim,
  type RepeatableResponse,
  type FirstRequest,
  Idempotency,
  type IdempotencyOptions,
} from './idempotency.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'
import { eventSinkOf, leaveOnFailure, STREAM_HEADERS } from '../../kernel/event-sink.ts'
import { type Exchange, MAX_HEADER_WAIT_MS, type Parsed } from '../../kernel/exchange.ts'
import type { Services } from '../../kernel/services.ts'
import { rateOf } from '../../kernel/send-failure.ts'
import { endWithoutResponse } from '../../kernel/settle.ts'
import { hideStoredMargin } from '../../streams/stored-margin.ts'
import { withoutMargin } from '../../billing/bill.ts'
import { baseHeaders } from '../../kernel/response-headers.ts'
import type { FailedResponse, StreamedResponse, WholeResponse } from '../../kernel/hooks.ts'

/** Accepts only printable ASCII, because clients encode other characters in headers differently. */
const KEY_PATTERN = /^[\x20-\x7e]{1,255}$/

/** The requests with a key. The later hooks know a first request by its claim. */
export interface Deduplication {
  /** Resolves with false if the request repeats an earlier one and has been answered. */
  claim(parsed: Parsed, services: Services): Promise<boolean>
  isFirst(exchange: Exchange): boolean
  remember(exchange: Exchange, response: WholeResponse): MaybePromise<void>
  share(exchange: Exchange, stream: StreamedResponse): undefined
  fail(exchange: Exchange, response: FailedResponse): MaybePromise<void>
  purge(scope: string): Promise<void>
  flush(): Promise<void>
}

const JSON_TYPE = { 'content-type': 'application/json' }

export function createDeduplication(options: IdempotencyOptions): Deduplication {
  const idempotency = new Idempotency(options)
  const claims = new WeakMap<Exchange, FirstRequest>()
  return {
    claim: async (parsed, services) => {
      const claimed = await deduplicate(parsed, idempotency, services)
      if (claimed === 'answered') return false
      if (claimed !== undefined) claims.set(parsed, claimed)
      return true
    },
    isFirst: (exchange) => claims.has(exchange),
    remember: (exchange, { headers, body }) =>
      claims.get(exchange)?.remember({ status: 200, head: { ...headers, ...JSON_TYPE }, body }),
    share: (exchange, { headers, buffer }) => void claims.get(exchange)?.share(headers, buffer),
    // The error is stored only if the upstream rejected the request itself, because a retry would then fail again.
    fail: (exchange, { failure, headers, body }) => {
      const first = claims.get(exchange)
      if (first === undefined) return undefined
      if (failure.kind === 'cancelled') return first.release()
      const status = failureStatus(failure)
      const response = { status, head: { ...headers, ...JSON_TYPE }, body }
      const isPermanent = failure.kind === 'upstream-rejected' && status !== 409
      return isPermanent ? first.remember(response) : first.release(response)
    },
    purge: (scope) => idempotency.purge(scope),
    flush: () => idempotency.flush(),
  }
}

/** Resolves with the claim of a first request, or with undefined for an item of a batch. */
export async function deduplicate(
  parsed: Parsed,
  idempotency: Pick<Idempotency, 'claim'>,
  services: Services,
): Promise<FirstRequest | 'answered' | undefined> {
  const { caller, subscribers, cancellation, request, requestBody } = parsed
  const idempotencyKey = request.header('idempotency-key')
  if (idempotencyKey === undefined || subscribers === undefined) return undefined
  if (!KEY_PATTERN.test(idempotencyKey)) throw invalidIdempotencyKey()
  const claiming = idempotency.claim({
    owner: caller.scope,
    idempotencyKey,
    // A request with a forged fingerprint would receive the response of another request, so the hash must be SHA-256.
    fingerprint: sha256(`${request.path}\n${await digestBody(requestBody, parsed)}`),
    subscribers,
    signal: cancellation.signal,
    timeoutMs: services.timeouts.totalMs,
  })
  const begun = parsed.prompt.stream ? await beginInTime(claiming, parsed, services) : undefined
  const claimed = await claiming
  if (claimed.role === 'repetition') return replay(parsed, claimed.replayed, services, begun)
  if (begun !== undefined) continueStream(parsed, begun)
  return claimed.first
}

/** If the first request has no content yet, the headers of a stream leave in time. Returns the sink of such a stream. */
async function beginInTime(
  claiming: Promise<RequestClaim>,
  parsed: Parsed,
  services: Services,
): Promise<EventSink | undefined> {
  const isClaimed = await new Promise<boolean>((resolve) => {
    const cancel = services.runtime.after(MAX_HEADER_WAIT_MS, () => resolve(false))
    claiming.finally(cancel).then(
      () => resolve(true),
      () => resolve(true),
    )
  })
  if (isClaimed) return undefined
  const rate = await rateOf(parsed, services)
  parsed.sink.begin(200, { ...baseHeaders(parsed.id, rate), ...STREAM_HEADERS })
  const begun = eventSinkOf(parsed, services)
  parsed.endStream = begun.fail
  return begun
}

/** The first request has failed in another process, so this one calls the upstream. Its headers have left. */
function continueStream(parsed: Parsed, begun: EventSink): void {
  const { sink } = parsed
  begun.detach()
  const continued: ResponseSink = {
    send: (_status, _headers, body) => {
      sink.write(body)
      sink.end()
    },
    begin: () => {},
    write: (bytes) => sink.write(bytes),
    onDrain: (listener) => sink.onDrain(listener),
    end: () => sink.end(),
    destroy: () => sink.destroy(),
  }
  parsed.sink = continued
}

async function digestBody(body: JsonObject, { size }: Parsed): Promise<string> {
  if (size.mayContainLargeMedia) await digestWithPauses([digestJsonInSteps(body, sha256)], yieldToEventLoop)
  return digestJson(body, sha256)
}

function invalidIdempotencyKey(): GatewayError {
  return new GatewayError(
    'invalid-request',
    'Idempotency-Key: expected 1 to 255 printable ASCII characters, such as a UUID.',
    { param: 'Idempotency-Key' },
  )
}

async function replay(
  parsed: Parsed,
  replayed: ReplayedResponse,
  services: Services,
  begun: EventSink | undefined,
): Promise<'answered'> {
  const { caller, id, sink } = parsed
  try {
    const headers = { ...baseHeaders(id, await services.ledger.status(caller)), 'idempotency-replayed': 'true' }
    if (replayed.kind === 'complete') {
      const { response } = replayed
      const { status, head, body } = services.showsMargin ? response : hideMarginInResponse(response)
      await endWithoutResponse(parsed, { status }, services)
      if (begun === undefined) sink.send(status, { ...headers, ...head }, body)
      else if (status !== 200) begun.fail(failureIn(body))
      else {
        begun.write(body)
        begun.end()
      }
      return 'answered'
    }
    await endWithoutResponse(parsed, { status: 200 }, services)
    if (begun === undefined) sink.begin(200, { ...headers, ...replayed.head })
    const { recording, leave } = replayed
    const stopReading = recording.follow(0, leaveOnFailure(begun ?? eventSinkOf(parsed, services), leave))
    parsed.onDisconnect = () => {
      stopReading()
      leave()
    }
    if (parsed.isDisconnected) parsed.onDisconnect()
    return 'answered'
  } catch (error) {
    if (replayed.kind === 'live') replayed.leave()
    throw error
  }
}

function failureIn(body: string): GatewayError {
  const message = asString(asObject(parseObject(body)?.['error'])?.['message'])
  return new GatewayError('upstream-rejected', message ?? 'The first request with this Idempotency-Key failed.')
}

export function hideMarginInResponse({ status, head, body }: RepeatableResponse): RepeatableResponse {
  return { status, head: withoutMargin(head), body: hideStoredMargin(body) }
}
