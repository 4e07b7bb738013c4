import { headersOf } from '../core/http.ts'
import { ONE_REQUEST } from '../governance/places.ts'
import type { WaitForStore } from '../governance/reservation.ts'
import { authenticate } from './authenticate.ts'
import { formatHeaders } from './call-upstream.ts'
import type { Authenticated, Exchange, Parsed } from './exchange.ts'
import { callerLeft } from './fail.ts'
import { baseHeaders, sendJson } from './head.ts'
import { parsePrompt, readJson } from './parse-request.ts'
import { readSteering } from './read-steering.ts'
import { release } from './settle.ts'
import type { Services } from './services.ts'
import { Stages } from './stages.ts'
import { waitForStore } from './store-wait.ts'

/** Milliseconds after which an upstream that counts is not waited for: the prompt is then counted here. */
const DEADLINE_MS = 10_000

/**
 * Answers how many tokens a message request has, `{input_tokens}`: by its upstream where that counts, else by our own
 * count, which `X-Svc-Estimated: true` states. Costs no money and no tokens, takes one request of the key's request
 * limits, and is under the same permissions as the request itself.
 */
export const countStages: Stages<Exchange> = Stages.begin(authenticate).next(parseCounted).next(respondWithCount)

/** The format demands a limit of a request, and has none for its count. */
async function parseCounted(authenticated: Authenticated, services: Services): Promise<Parsed> {
  authenticated.steering = readSteering(headersOf(authenticated.request), { canExplain: true })
  const { body, bytes } = await readJson(authenticated, services)
  return parsePrompt(authenticated, { body: { max_tokens: 1, ...body, stream: false }, bytes }, services)
}

async function respondWithCount(parsed: Parsed, services: Services): Promise<undefined> {
  const wait: WaitForStore = (given) => waitForStore(parsed, given, services)
  const reservation = await services.ledger.reserve(parsed.key, ONE_REQUEST, wait)
  parsed.reservation = reservation
  const { tokens, isEstimated } = await countTokens(parsed, services)
  await release(parsed, { status: 200 }, services)
  const headers = baseHeaders(parsed.id, reservation.rate)
  if (isEstimated) headers['x-svc-estimated'] = 'true'
  sendJson(parsed.sink, 200, headers, JSON.stringify({ input_tokens: tokens }))
  return undefined
}

interface Count {
  readonly tokens: number
  readonly isEstimated: boolean
}

async function countTokens(parsed: Parsed, { runtime, timeouts, meter }: Services): Promise<Count> {
  const { prompt, resolved, cancellation, request } = parsed
  const { provider, model } = resolved.routes[0]
  const { signal } = cancellation
  const total = Math.min(timeouts.total, DEADLINE_MS)
  const headers = formatHeaders(request)
  const call = { prompt, model, signal, cancellation, runtime, timeouts: { ...timeouts, total }, headers }
  const counted = await provider.countTokens?.(call).catch((error: unknown) => {
    if (cancellation.isCancelled) throw callerLeft(error)
    return undefined
  })
  return counted === undefined
    ? { tokens: await meter.countOf(prompt, signal), isEstimated: true }
    : { tokens: counted, isEstimated: false }
}
