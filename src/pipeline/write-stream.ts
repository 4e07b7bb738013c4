import type { Completion, Frame, Step } from '../core/answer.ts'
import { GatewayError } from '../core/errors.ts'
import { textOfPart } from '../core/prompt.ts'
import { collector, type Collector } from '../core/steps.ts'
import { writeFrame } from '../http/sse.ts'
import type { TextSource } from '../replay/recording.ts'
import { billFor, billForPart } from './charge.ts'
import { asFailure, callerLeft } from './refuse.ts'
import { release, settle } from './settle.ts'
import type { Bill } from '../billing/bill.ts'
import type { Answered, Outcome, Parts } from './stages.ts'
import { statementOf } from './statement.ts'
import { keepTurn, writeContext } from './turns.ts'

/** A streamed answer in the caller's format. */
export interface WrittenStream {
  /**
   * Server-sent events. What broke off is told as the format's own error event, without the event that would make it
   * look whole.
   */
  readonly texts: TextSource
  /** The error event for a stream that was stopped. */
  readonly farewell: () => string
}

/** `named` is told the answer's id, as the upstream gave it, before the first text. */
export function writeStream(
  answered: Answered,
  steps: AsyncIterable<Step>,
  named: (id: string) => void,
  parts: Parts,
): WrittenStream {
  const { format } = answered
  const writer = format.stepWriter(writeContext(answered))
  const join = eventJoiner(format.answerId !== undefined)
  const fail = (failure: GatewayError): string =>
    join(writer.fail?.(failure) ?? [format.writeFailureFrame(failure, answered.id)])

  async function* texts(): TextSource {
    const collected = collector()
    try {
      for await (const step of settling(answered, steps, collected, parts)) {
        const name = nameIn(step)
        if (name !== undefined) named(name)
        const text = join(writer.write(step))
        if (text !== '') yield text
      }
    } catch (error) {
      if (answered.signal.aborted) return
      yield { last: fail(asFailure(error)), isWhole: false }
      return
    }
    const ending = writer.end(statementOf(billOfStream(answered, collected, parts)))
    await keepTurn(answered, ending.at(-1)?.data, parts)
    yield { last: join(ending), isWhole: true }
  }
  return { texts: texts(), farewell: () => fail(stopped()) }
}

function nameIn(step: Step): string | undefined {
  for (const event of step.events) if (event.type === 'answer-start') return event.id
  return undefined
}

/** Events that can be resumed are numbered from 1: an id is how many events a reader has seen. */
function eventJoiner(isNumbered: boolean): (frames: readonly Frame[]) => string {
  let count = 0
  if (!isNumbered) return (frames) => frames.map((frame) => writeFrame(frame)).join('')
  return (frames) => frames.map((frame) => writeFrame(frame, String(++count))).join('')
}

function stopped(): GatewayError {
  return new GatewayError(
    'cancelled',
    'The generation was stopped before its end: its caller left, or the gateway was closed. Send X-Svc-Detach: true with a request that shall go on without a reader.',
  )
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
  let outcome: Outcome = { status: 499, failure: callerLeft() }
  try {
    for await (const step of steps) {
      collected.add(step)
      yield step
    }
    outcome = { status: 200, completion: collected.completion() }
  } catch (error) {
    const failure = asFailure(error)
    if (!answered.signal.aborted) outcome = { status: 200, failure }
    throw failure
  } finally {
    const isFailed = outcome.status === 200 && outcome.failure !== undefined
    if (isFailed && isEmpty(collected.completion())) await release(answered, outcome, parts)
    else await settle(answered, billOfStream(answered, collected, parts), outcome, parts)
  }
}

/** True for a stream that broke before it said anything: it counts as a failed request. */
function isEmpty({ parts }: Completion): boolean {
  return parts.every((part) => textOfPart(part) === '')
}

function billOfStream(answered: Answered, collected: Collector, parts: Parts): Bill {
  const completion = collected.completion()
  return collected.isFinished()
    ? billFor(answered, completion, parts.meter)
    : billForPart(answered, completion, parts.meter)
}
