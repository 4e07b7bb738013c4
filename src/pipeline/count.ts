import { GatewayError } from '../core/errors.ts'
import { ONE_REQUEST } from '../governance/places.ts'
import { admit } from './admit.ts'
import { formatHeaders } from './ask.ts'
import { baseHead, jsonResponse } from './head.ts'
import { refuse } from './refuse.ts'
import { release } from './settle.ts'
import type { Parts, Reached, Received, Understood } from './stages.ts'
import { readJson, understand } from './understand.ts'

/** A count is a small thing: nobody waits longer for an upstream that could be counted without. */
const DEADLINE_MS = 10_000

/**
 * How many tokens a message request has, `{input_tokens}`: by its upstream where that counts, else by our own count,
 * which `X-Svc-Estimated: true` says. Costs no money and no tokens, takes one request of the key's request limits, and
 * is under the same permissions as the request itself.
 */
export async function count(received: Received, parts: Parts): Promise<Response> {
  let reached: Reached = received
  try {
    const admitted = (reached = await admit(received, parts))
    const { body } = await readJson(admitted, parts)
    // The format wants a limit of a request, and knows none for its count.
    const request = withBody(admitted.request, JSON.stringify({ max_tokens: 1, ...body, stream: false }))
    const understood = (reached = await understand({ ...admitted, request }, parts))
    const reservation = await parts.ledger.reserve(admitted.key, ONE_REQUEST)
    const reserved = (reached = { ...understood, reservation })
    const { tokens, estimated } = await countedBy(reserved, parts)
    const head = baseHead(received.id, reservation.rate)
    await release(reserved, { status: 200 }, parts)
    return jsonResponse(
      200,
      { ...head, ...(estimated && { 'x-svc-estimated': 'true' }) },
      JSON.stringify({ input_tokens: tokens }),
    )
  } catch (error) {
    return refuse(reached, error, parts)
  }
}

function withBody({ url, headers }: Request, body: string): Request {
  const kept = new Headers(headers)
  kept.delete('content-length')
  return new Request(url, { method: 'POST', headers: kept, body })
}

interface Count {
  readonly tokens: number
  readonly estimated: boolean
}

async function countedBy(understood: Understood, parts: Parts): Promise<Count> {
  const { prompt, resolved, signal, request } = understood
  const { provider, model } = resolved.routes[0]
  const { runtime, timeouts } = parts
  const total = Math.min(timeouts.total, DEADLINE_MS)
  const call = {
    prompt,
    model,
    signal,
    runtime,
    timeouts: { ...timeouts, total },
    headers: formatHeaders(request.headers),
  }
  const told = await provider.countTokens?.(call).catch((error: unknown) => {
    if (signal.aborted) throw new GatewayError('cancelled', 'The caller left before the count.', { cause: error })
    return undefined
  })
  return told === undefined
    ? { tokens: await parts.meter.countOf(prompt, signal), estimated: true }
    : { tokens: told, estimated: false }
}
