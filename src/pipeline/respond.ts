import { billHeaders, headerSafe } from '../billing/headers.ts'
import { billFor, expectedBill } from './charge.ts'
import { baseHead, jsonResponse, type Head } from './head.ts'
import { keepWhole, startRecording } from './record.ts'
import { settle } from './settle.ts'
import type { Answered, Parts } from './stages.ts'
import { statementOf } from './statement.ts'
import { bodyOf, STREAM_HEAD } from './stream-body.ts'
import { keepTurn, writeContext } from './turns.ts'

/** The answer in the caller's own format, with its bill. A stream settles when it ends, however it ends. */
export async function respond(answered: Answered, parts: Parts): Promise<Response> {
  const { answer } = answered
  const base = baseHead(answered.id, answered.reservation.rate)
  if (answer.kind === 'whole') {
    const { completion } = answer
    const bill = billFor(answered, completion, parts.meter)
    const statement = statementOf(bill)
    const body = answered.format.writeCompletion(completion, statement, writeContext(answered))
    const head = { ...answerHead(answered), ...billHeaders(bill) }
    await settle(answered, bill, { status: 200, completion }, parts)
    await keepTurn(answered, body, parts)
    await keepWhole(answered, { head, body, id: completion.id, metrics: { ...statement } }, parts)
    return jsonResponse(200, { ...base, ...head }, body)
  }
  const head = { ...answerHead(answered), ...billHeaders(expectedBill(answered)), ...STREAM_HEAD }
  const reader = startRecording(answered, answer.steps, head, parts)
  const body = bodyOf(reader, {
    heartbeat: answered.format.heartbeat,
    heartbeatMs: parts.limits.heartbeatMs,
    after: parts.runtime.after,
    now: parts.runtime.now,
    signal: answered.request.signal,
  })
  return new Response(body, { status: 200, headers: { ...base, ...head } })
}

function answerHead(answered: Answered): Head {
  return answered.ignored.length > 0 ? { 'x-svc-ignored': headerSafe(answered.ignored.join(', ')) } : {}
}
