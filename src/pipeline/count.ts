import { ONE_REQUEST, type WaitForStore } from '../governance/reservation.ts'
import { authenticate } from './authenticate.ts'
import { formatHeaders } from './call-upstream.ts'
import type { Authenticated, Exchange, Parsed } from './exchange.ts'
import { callerLeft, release } from './settle.ts'
import { baseHeaders, sendJson } from './response.ts'
import { parsePrompt, readJson, readSteering } from './parse-request.ts'
import type { Services } from './services.ts'
import { Stages } from './run.ts'
import { waitForStore } from './reserve.ts'

/** Timeout of a count by an upstream, in milliseconds. After it the gateway counts the prompt. */
const DEADLINE_MS = 10_000

/**
 * Returns the number of tokens of a message request, `{input_tokens}`. The upstream counts if it can. Otherwise the
 * gateway counts and sets `X-Svc-Estimated: true`. The request costs no money and no tokens, counts as one request
 * against the request limits of the key, and needs the same permissions as the request itself.
 */
export const countStages: Stages<Exchange> = Stages.begin(authenticate).next(parseCounted).next(respondWithCount)

/** The format requires max_tokens in a request, but not in its count. */
async function parseCounted(authenticated: Authenticated, services: Services): Promise<Parsed> {
  authenticated.steering = readSteering(authenticated.request, { canExplain: true })
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
