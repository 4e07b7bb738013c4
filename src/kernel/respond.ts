import type { Completion } from '../core/answer.ts'
import { type MaybePromise, chain, isPromise } from '../core/async.ts'
import type { HeaderRecord } from '../core/http.ts'
import { type Answered, createWriteContext, requestsJsonByInstruction } from './exchange.ts'
import type { Services } from './services.ts'
import type { WriteMetrics } from '../formats/format.ts'
import { billFor, metricsWriter, prepareBill } from './charge.ts'
import { isRecorded, storeTurn, settle } from './settle.ts'
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
  return import('./unwrap-json.ts').then(({ unwrapJson }) =>
    sendCompleteAnswer(answered, unwrapJson(completion), services),
  )
}

function sendCompleteAnswer(answered: Answered, completion: Completion, services: Services): MaybePromise<undefined> {
  const { format, sink, plugins } = answered
  if (format.turns?.isUnfinished(completion) === true) {
    return loadStreaming().then(({ respondInBackground }) => respondInBackground(answered, completion, services))
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
  const stored = chain(settled, () =>
    keepAnswer(answered, { headers, body, id: completion.id, writeMetrics }, services),
  )
  return chain(stored, () => {
    sendJson(sink, 200, Object.assign(baseHeaders(answered.id, answered.reservation.rate), headers), body)
    return undefined
  })
}

interface CompleteAnswer {
  /** Headers that are repeated when the answer is replayed. */
  readonly headers: Readonly<HeaderRecord>
  readonly body: string
  readonly id: string
  readonly writeMetrics: WriteMetrics
}

function keepAnswer(answered: Answered, answer: CompleteAnswer, services: Services): MaybePromise<void> {
  const { format, key, idempotencyClaim } = answered
  const { headers, body, id, writeMetrics } = answer
  if (format.answerId !== undefined && isRecorded(answered, services)) {
    services.recordings.storeAnswer(
      { kind: 'whole', text: body, metrics: writeMetrics('summary') },
      key.id,
      format.answerId(id),
    )
  }
  const stored = storeTurn(answered, body, services)
  if (idempotencyClaim === undefined) return stored
  return chain(stored, () =>
    idempotencyClaim.remember({ status: 200, head: { ...headers, 'content-type': 'application/json' }, body }),
  )
}
