import type { Frame, Step } from '../core/answer.ts'
import { collector, type Collector } from '../core/steps.ts'
import { writeFrame } from '../http/sse.ts'
import { billFor, billForPart } from './charge.ts'
import { asFailure } from './refuse.ts'
import { settle } from './settle.ts'
import type { Bill } from '../billing/bill.ts'
import type { Answered, Outcome, Parts } from './stages.ts'
import { statementOf } from './statement.ts'
import { writeContext } from './turns.ts'

/**
 * A streamed answer as server-sent events in the caller's format. What broke off is told as the format's own error
 * event, without the event that would make it look whole.
 */
export async function* writeStream(
  answered: Answered,
  steps: AsyncIterable<Step>,
  parts: Parts,
): AsyncGenerator<string, void, undefined> {
  const { format } = answered
  const writer = format.stepWriter(writeContext(answered))
  const collected = collector()
  try {
    for await (const step of settling(answered, steps, collected, parts)) {
      const text = join(writer.write(step))
      if (text !== '') yield text
    }
  } catch (error) {
    const failure = asFailure(error)
    yield join(writer.fail?.(failure) ?? [format.writeFailureFrame(failure, answered.id)])
    return
  }
  const ending = writer.end(statementOf(billOfStream(answered, collected, parts)))
  await parts.turns.keep(answered, ending.at(-1)?.data)
  yield join(ending)
}

function join(frames: readonly Frame[]): string {
  return frames.map(writeFrame).join('')
}

/**
 * The same steps, collected on their way. The `finally` runs once whether the stream ends, breaks or is left by its
 * caller, and before the last frames leave: who has seen the end of an answer finds it settled.
 */
async function* settling(
  answered: Answered,
  steps: AsyncIterable<Step>,
  collected: Collector,
  parts: Parts,
): AsyncGenerator<Step, void, undefined> {
  let outcome: Outcome = { status: 499 }
  try {
    for await (const step of steps) {
      collected.add(step)
      yield step
    }
    outcome = { status: 200, completion: collected.completion() }
  } catch (error) {
    const failure = asFailure(error)
    outcome = answered.signal.aborted ? { status: 499 } : { status: 200, failure }
    throw failure
  } finally {
    await settle(answered, billOfStream(answered, collected, parts), outcome, parts)
  }
}

function billOfStream(answered: Answered, collected: Collector, parts: Parts): Bill {
  const completion = collected.completion()
  return collected.isFinished()
    ? billFor(answered, completion, parts.meter)
    : billForPart(answered, completion, parts.meter)
}
