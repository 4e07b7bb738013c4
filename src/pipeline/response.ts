import type { Completion } from '../core/answer.ts'
import { isPromise, lazy, type MaybePromise } from '../core/async.ts'
import { type Bill, billHeaders, toHeaderText } from '../billing/bill.ts'
import type { HeaderRecord, ResponseSink } from '../core/http.ts'
import type { RateStatus } from '../governance/limits.ts'
import { readCacheDirectives } from '../cache/cache-options.ts'
import type { WriteContext } from '../formats/format.ts'
import { supportsDialect } from '../upstream/attempts.ts'
import type { Answered, Parsed } from './exchange.ts'
import type { Services } from './services.ts'

export function baseHeaders(requestId: string, rate: RateStatus): HeaderRecord {
  return {
    'x-request-id': requestId,
    'request-id': requestId,
    'x-ratelimit-limit': String(rate.limit),
    'x-ratelimit-remaining': String(rate.remaining),
    'x-ratelimit-reset': String(Math.ceil(rate.resetAt / 1000)),
  }
}

export function answerHeaders(bill: Bill, ignored: readonly string[]): HeaderRecord {
  const headers = billHeaders(bill)
  if (ignored.length > 0) headers['x-svc-ignored'] = toHeaderText(ignored.join(', '))
  return headers
}

export function sendJson(sink: ResponseSink, status: number, headers: HeaderRecord, body: string | Uint8Array): void {
  headers['content-type'] = 'application/json'
  sink.send(status, headers, body)
}

/** Prevents proxies from caching or changing the stream. */
export const STREAM_HEADERS: Readonly<HeaderRecord> = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no',
}

/** Batch items have no subscribers, because they store their results themselves. */
export function isRecorded({ format, subscribers, request }: Answered, { recordings }: Services): boolean {
  if (!recordings.isEnabled || subscribers === undefined || format.answerId === undefined) return false
  return readCacheDirectives((name) => request.header(name)).allowsWrite
}

/** Returns true if only an instruction requests JSON, because the upstream's format has no setting for it. */
export function requestsJsonByInstruction({ prompt, route }: Pick<Answered, 'prompt' | 'route'>): boolean {
  if (prompt.settings.shape?.type !== 'json' || prompt.native.dialect === 'anthropic') return false
  return route?.provider.dialect === 'anthropic'
}

export const loadJsonUnwrapper: () => Promise<{ unwrapJson(completion: Completion): Completion }> = lazy(
  () => import('./on-demand.ts'),
)

/** A provider stores only answers to requests in its own format. */
export function storingProvider({
  plan,
  route,
  format,
}: Pick<Answered, 'plan' | 'route' | 'format'>): string | undefined {
  if (plan.kind === 'replay' || route === undefined || !supportsDialect(route.provider, format.dialect))
    return undefined
  return route.provider.name
}

/** Never throws or rejects, because the answer is sent anyway. */
export function storeTurn(
  answered: Answered,
  serialized: string | undefined,
  { turns, observers }: Pick<Services, 'turns' | 'observers'>,
): MaybePromise<void> {
  const logFailure = (cause: unknown): void =>
    observers.reportFailure('an answer could not be stored for later requests', cause, { request_id: answered.id })
  try {
    const stored = turns.store(answered, serialized)
    return isPromise(stored) ? stored.catch(logFailure) : stored
  } catch (cause) {
    logFailure(cause)
  }
}

export function createWriteContext({
  prompt,
  startedAt,
  id,
  requestBody,
}: Pick<Parsed, 'prompt' | 'startedAt' | 'id' | 'requestBody'>): WriteContext {
  return { prompt, createdSeconds: Math.floor(startedAt / 1000), requestId: id, requestBody }
}
