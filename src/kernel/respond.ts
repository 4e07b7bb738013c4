import type { Completion } from '../core/answer.ts'
import { type MaybePromise, chain, isPromise } from '../core/async.ts'
import { type Answered, createWriteContext, requestsJsonByInstruction } from './exchange.ts'
import type { Services, WholeResponse } from './services.ts'
import { billFor, metricsWriter, prepareBill } from './charge.ts'
import { settle } from './settle.ts'
import { loadStreaming } from './call-upstream.ts'
import { answerHeaders, baseHeaders, sendJson } from './response-headers.ts'

export function respond(answered: Answered, services: Services): MaybePromise<undefined> {
  const { answer } = answered
  if (answer.kind !== 'whole') {
    return loadStreaming().then(({ respondWithStream }) => respondWithStream(answered, answer, services))
  }
  const { completion } = answer
  const prepared = prepareBill(answered)
  return isPromise(prepared)
    ? prepared.then(() => respondWithCompleteAnswer(answered, completion, services))
    : respondWithCompleteAnswer(answered, completion, services)
}

function respondWithCompleteAnswer(
  answered: Answered,
  completion: Completion,
  services: Services,
): MaybePromise<undefined> {
  if (!requestsJsonByInstruction(answered)) return sendCompleteAnswer(answered, completion, services)
  return import('./adapt-response.ts').then(({ unwrapJson }) =>
    sendCompleteAnswer(answered, unwrapJson(completion), services),
  )
}

function sendCompleteAnswer(answered: Answered, completion: Completion, services: Services): MaybePromise<undefined> {
  const { format, sink, plugins } = answered
  const { onUnfinished, onResponse } = services.hooks
  const [settleLater] = onUnfinished
  if (settleLater !== undefined && format.turns?.isUnfinished(completion) === true) {
    return settleLater(answered, completion, services).then(() => undefined)
  }
  const bill = billFor(answered, { usage: completion.usage, completion: () => completion }, services.meter)
  const writeMetrics = metricsWriter(bill, services)
  const sent = plugins?.completion ?? completion
  const body = format.writeCompletion(sent, writeMetrics, createWriteContext(answered, services.runtime))
  const isNative = sent.native?.dialect === format.dialect
  const omitted = isNative ? [] : (format.omittedContent?.(sent) ?? [])
  if (omitted.length > 0) answered.ignoredFields = [...answered.ignoredFields, ...omitted]
  const headers = answerHeaders(bill, answered.ignoredFields, services)
  const settled = settle(answered, { status: 200, bill, completion: () => completion }, services)
  const stored =
    onResponse.length === 0
      ? settled
      : chain(settled, () => keepResponse(answered, { headers, body, id: completion.id, writeMetrics }, services))
  return chain(stored, () => {
    sendJson(sink, 200, Object.assign(baseHeaders(answered.id, answered.grant.rate), headers), body)
    return undefined
  })
}

/** Lets the plugins keep a response, one after the other. */
export function keepResponse(
  answered: Answered,
  response: WholeResponse,
  services: Services,
  first: number = 0,
): MaybePromise<void> {
  const { onResponse } = services.hooks
  for (let index = first; index < onResponse.length; index++) {
    const kept = onResponse[index]?.(answered, response, services)
    if (isPromise(kept)) return kept.then(() => keepResponse(answered, response, services, index + 1))
  }
  return undefined
}
