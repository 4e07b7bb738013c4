import type { AnswerEvent, Frame, Step } from '../core/answer.ts'
import { GatewayError } from '../core/errors.ts'
import type { StepReader } from '../formats/format.ts'
import { joinBytes } from '../http/bytes.ts'
import { createFrameReader } from '../http/sse.ts'
import { breathe } from '../tokens/breathe.ts'
import { brokenUpstream, isTooDeep } from './upstream-failure.ts'
import type { Watch } from './watch-call.ts'

/** A response whose head has been read. */
export interface Opened {
  readonly provider: string
  readonly pieces: AsyncIterator<Uint8Array>
  readonly watch: Watch
}

/** Maximum size of a whole answer, and of one event of a stream, in bytes. */
export const MAX_ANSWER_BYTES: number = 32 * 1024 * 1024

/** After the protocol's last event only the end of the body is to come: more than so many bytes are not waited for. */
const LONGEST_TAIL = 4 * 1024

const LAST: IteratorReturnResult<undefined> = { done: true, value: undefined }

/** For whole bodies; it keeps nothing between two of them. */
const decoder = new TextDecoder()

/** The whole body as text; undefined when it is longer than `most` bytes, and the connection is then closed. */
export async function readText(opened: Opened, most: number): Promise<string | undefined> {
  const pieces: Uint8Array[] = []
  let size = 0
  try {
    for (let bytes = await nextPiece(opened); bytes !== undefined; bytes = await nextPiece(opened)) {
      pieces.push(bytes)
      size += bytes.byteLength
      if (size <= most) continue
      opened.watch.leave()
      return undefined
    }
  } catch (error) {
    throw endEarly(opened, error)
  }
  opened.watch.end()
  return decoder.decode(joinBytes(pieces, size))
}

/**
 * The steps of a streamed answer. It is whole only after the protocol's own last event: a stream that ends without it
 * throws `upstream`, and what comes after it is dropped. Leaving the loop closes the connection at once, also while a
 * step is awaited. Not a generator, whose `return` would wait for the step and would do nothing before the first one.
 */
export function readSteps(opened: Opened, readStep: StepReader): AsyncIterable<Step> {
  const nextFrame = frameSource(opened)
  let saidSomething = false
  let over = false

  const readNext = async (): Promise<IteratorResult<Step, undefined>> => {
    const frame = await nextFrame()
    if (over) return LAST
    const step = frame === undefined ? lastStep(opened, readStep) : readFrame(opened, frame, readStep)
    saidSomething ||= step.events.some(isWord)
    if (!step.events.some(isDone)) return { done: false, value: step }
    if (!saidSomething) throw brokenUpstream(opened.provider, 'ended its stream without an answer')
    over = true
    if (frame === undefined) opened.watch.end()
    else void drain(opened)
    return { done: false, value: step }
  }
  const next = async (): Promise<IteratorResult<Step, undefined>> => {
    if (over) return LAST
    try {
      return await readNext()
    } catch (error) {
      if (over) return LAST
      over = true
      throw endEarly(opened, error)
    }
  }
  const leave = (): Promise<IteratorResult<Step, undefined>> => {
    if (!over) opened.watch.leave()
    over = true
    return Promise.resolve(LAST)
  }
  return { [Symbol.asyncIterator]: () => ({ next, return: leave }) }
}

/** After so many frames the event loop gets a turn: an upstream may send tens of thousands at once. */
const FRAMES_PER_TURN = 64
const BYTES_READ_AT_ONCE = 64 * 1024
/** In place of a piece: the body has ended. */
const END = new Uint8Array(0)

/** The frames of the body one by one; undefined at its end. */
function frameSource(opened: Opened): () => Promise<Frame | undefined> {
  const reader = createFrameReader(MAX_ANSWER_BYTES)
  let frames: readonly Frame[] = []
  let position = 0
  let sinceTurn = 0
  let rest: Uint8Array = new Uint8Array(0)
  let ended = false
  return async () => {
    if (++sinceTurn > FRAMES_PER_TURN) {
      sinceTurn = 0
      await breathe()
    }
    while (position === frames.length && !ended) {
      if (rest.byteLength === 0) rest = (await nextPiece(opened)) ?? END
      ended = rest === END
      frames = ended ? reader.end() : reader.read(rest.subarray(0, BYTES_READ_AT_ONCE))
      rest = rest.subarray(BYTES_READ_AT_ONCE)
      position = 0
    }
    return frames[position++]
  }
}

function readFrame(opened: Opened, frame: Frame, readStep: StepReader): Step {
  if (isTooDeep(frame.data)) throw brokenUpstream(opened.provider, 'sent an event that is nested too deep')
  return readStep(frame)
}

/** The body has ended cleanly: either nothing was missing but the last event, or the answer is not whole. */
function lastStep(opened: Opened, readStep: StepReader): Step {
  if (readStep.isWhole?.() === true) return { events: [{ type: 'done' }] }
  throw brokenUpstream(opened.provider, 'ended its stream before the answer was complete')
}

/** Reads the end of a body whose last event has come, so that its connection can carry the next call. */
async function drain(opened: Opened): Promise<void> {
  let size = 0
  try {
    while (size <= LONGEST_TAIL) {
      const bytes = await nextPiece(opened)
      if (bytes === undefined) return opened.watch.end()
      size += bytes.byteLength
    }
  } catch {
    // The answer is complete: how its connection ends concerns nobody.
  }
  opened.watch.leave()
}

async function nextPiece(opened: Opened): Promise<Uint8Array | undefined> {
  opened.watch.waiting()
  const result = await opened.pieces.next()
  opened.watch.received()
  return result.done === true ? undefined : result.value
}

/** Closes the connection, and says what the error really was: the caller's leaving, a deadline, or the upstream. */
function endEarly(opened: Opened, error: unknown): unknown {
  const stopped = opened.watch.stopped()
  opened.watch.leave()
  if (stopped !== undefined) return stopped.reason
  return GatewayError.is(error) ? error : brokenUpstream(opened.provider, 'broke off its answer', error)
}

function isDone(event: AnswerEvent): boolean {
  return event.type === 'done'
}

function isWord(event: AnswerEvent): boolean {
  return event.type !== 'done' && event.type !== 'usage'
}
