import { billHeaders, headerSafe } from '../billing/headers.ts'
import { billFor, expectedBill } from './charge.ts'
import { baseHead, jsonResponse, type Head } from './head.ts'
import { settle } from './settle.ts'
import type { Answered, Parts } from './stages.ts'
import { statementOf } from './statement.ts'
import { writeContext } from './turns.ts'
import { streamBody } from './stream-body.ts'
import { writeStream } from './write-stream.ts'

/** The answer in the caller's own format, with its bill. A stream settles when it ends, however it ends. */
export async function respond(answered: Answered, parts: Parts): Promise<Response> {
  const { answer } = answered
  if (answer.kind === 'whole') {
    const { completion } = answer
    const bill = billFor(answered, completion, parts.meter)
    const body = answered.format.writeCompletion(completion, statementOf(bill), writeContext(answered))
    await parts.turns.keep(answered, body)
    await settle(answered, bill, { status: 200, completion }, parts)
    return jsonResponse(200, { ...answerHead(answered), ...billHeaders(bill) }, body)
  }
  const body = await streamBody(writeStream(answered, answer.steps, parts), {
    heartbeat: answered.format.heartbeat,
    heartbeatMs: parts.limits.heartbeatMs,
    after: parts.runtime.after,
    now: parts.runtime.now,
    leave: () => answered.abort(new Error('The caller left.')),
    signal: answered.signal,
  })
  const head: Head = {
    ...answerHead(answered),
    ...billHeaders(expectedBill(answered)),
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache, no-transform',
    'x-accel-buffering': 'no',
  }
  return new Response(body, { status: 200, headers: head })
}

function answerHead(answered: Answered): Head {
  const head = baseHead(answered.id, answered.reservation.rate)
  if (answered.ignored.length > 0) head['x-svc-ignored'] = headerSafe(answered.ignored.join(', '))
  return head
}
