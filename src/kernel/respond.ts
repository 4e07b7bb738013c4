import type { Completion } from '../core/completion.ts'
import { type MaybePromise, chain, isPromise } from '../core/async.ts'
import { type Responded } from './exchange.ts'
import type { Services } from './services.ts'
import { billFor, prepareBill } from './charge.ts'
import { settle } from './settle.ts'
import { loadStreaming } from './call-upstream.ts'
import { responseHeaders, baseHeaders, sendJson } from './response-headers.ts'
import { createWriteContext, requestsJsonByInstruction } from './write-context.ts'
import type { WholeResponse } from './hooks.ts'
import { metricsWriter } from './svc-metrics.ts'

export function respond(responded: Responded, services: Services): MaybePromise<undefined> {
  const { response } = responded
  if (response.kind !== 'whole') {
    return loadStreaming().then(({ respondWithStream }) => respondWithStream(responded, response, services))
  }
  const { completion } = response
  const prepared = prepareBill(responded)
  return isPromise(prepared)
    ? prepared.then(() => respondWithCompleteResponse(responded, completion, services))
    : respondWithCompleteResponse(responded, completion, services)
}

function respondWithCompleteResponse(
  responded: Responded,
  completion: Completion,
  services: Services,
): MaybePromise<undefined> {
  if (!requestsJsonByInstruction(responded)) return sendCompleteResponse(responded, completion, services)
  return import('./adapt-response.ts').then(({ unwrapJson }) =>
    sendCompleteResponse(responded, unwrapJson(completion), services),
  )
}

function sendCompleteResponse(
  responded: Responded,
  completion: Completion,
  services: Services,
): MaybePromise<undefined> {
  const { format, sink, plugins } = responded
  const { onUnfinished, onResponse } = services.hooks
  if (onUnfinished !== undefined && format.turns?.isUnfinished(completion) === true) {
    return onUnfinished(responded, completion, services).then(() => undefined)
  }
  const bill = billFor(responded, { usage: completion.usage, completion: () => completion }, services.meter)
  const writeMetrics = metricsWriter(bill, services)
  const sent = plugins?.completion ?? completion
  const body = format.writeCompletion(sent, writeMetrics, createWriteContext(responded, services.runtime))
  const isNative = sent.native?.dialect === format.dialect
  const omitted = isNative ? [] : (format.omittedContent?.(sent) ?? [])
  if (omitted.length > 0) responded.ignoredFields = [...responded.ignoredFields, ...omitted]
  const headers = responseHeaders(bill, responded.ignoredFields, services)
  const settled = settle(responded, { status: 200, bill, completion: () => completion }, services)
  const stored =
    onResponse.length === 0
      ? settled
      : chain(settled, () => keepResponse(responded, { headers, body, id: completion.id, writeMetrics }, services))
  return chain(stored, () => {
    sendJson(sink, 200, Object.assign(baseHeaders(responded.id, responded.grant.rate), headers), body)
    return undefined
  })
}

/** Lets the plugins keep a response, one after the other. */
export function keepResponse(
  responded: Responded,
  response: WholeResponse,
  services: Services,
  first: number = 0,
): MaybePromise<void> {
  const { onResponse } = services.hooks
  for (let index = first; index < onResponse.length; index++) {
    const kept = onResponse[index]?.(responded, response, services)
    if (isPromise(kept)) return kept.then(() => keepResponse(responded, response, services, index + 1))
  }
  return undefined
}
