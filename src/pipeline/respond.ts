import { chain, type MaybePromise } from '../core/async.ts'
import type { Completion } from '../core/answer.ts'
import { billFor, BillMetrics, prepareBill } from './charge.ts'
import type { Answered } from './exchange.ts'
import { answerHeaders, baseHeaders, keepWhole, sendJson } from './response.ts'
import { isAskedInWords, loadJsonCheck, respondWithStream } from './stream-answer.ts'
import { settle } from './settle.ts'
import type { Services } from './services.ts'
import { writeContext } from './turns.ts'

async function respondLater(answered: Answered, completion: Completion, services: Services): Promise<undefined> {
  const { respondInBackground } = await import('./rare-stages.ts')
  return respondInBackground(answered, completion, services)
}

/** The answer in the caller's own format, with its bill. A stream settles when it ends, however it ends. */
export function respond(answered: Answered, services: Services): MaybePromise<undefined> {
  const { answer } = answered
  if (answer.kind === 'streamed') return respondWithStream(answered, answer.stream, services)
  const { completion } = answer
  return chain(prepareBill(answered), () => {
    if (!isAskedInWords(answered)) return respondWhole(answered, completion, services)
    return loadJsonCheck().then(({ checkJson }) => respondWhole(answered, checkJson(completion), services))
  })
}

function respondWhole(answered: Answered, completion: Completion, services: Services): MaybePromise<undefined> {
  const { format, sink } = answered
  if (format.turns?.isUnfinished(completion) === true) return respondLater(answered, completion, services)
  const bill = billFor(answered, { usage: completion.usage, completion: () => completion }, services.meter)
  const metrics = new BillMetrics(bill)
  const body = format.writeCompletion(completion, metrics, writeContext(answered))
  const headers = answerHeaders(bill, answered.ignored)
  const settled = settle(answered, { status: 200, bill, completion: () => completion }, services)
  const kept = chain(settled, () => keepWhole(answered, { headers, body, id: completion.id, metrics }, services))
  return chain(kept, () => {
    sendJson(sink, 200, Object.assign(baseHeaders(answered.id, answered.reservation.rate), headers), body)
    return undefined
  })
}
