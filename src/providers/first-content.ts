import type { AnswerEvent, Step } from '../core/answer.ts'
import type { Runtime } from '../core/ports.ts'

/** How long a request waits for the first content of its stream, once an upstream has answered 200. */
export const MAX_HOLD_MS = 5000

/** Receives how a stream ended: one of these is called, once. */
export interface StreamEnd {
  readonly whole: () => void
  readonly broken: (error: unknown) => void
  readonly left: () => void
}

type Result = IteratorResult<Step, undefined>

/** What was read of a stream before it is passed on. */
interface Beginning {
  readonly held: Result[]
  /** A step that was asked for and has not come yet. */
  readonly pending: Promise<Result> | undefined
}

/**
 * Waits at most `holdMs` until a stream says something that a caller will see. A break before that rejects, so that
 * another candidate can still answer, and does not call `begin`. After `holdMs` the stream is passed on, silent or not:
 * the headers and heartbeats of the response show the caller that it lives.
 */
export async function untilContent(
  steps: AsyncIterable<Step>,
  runtime: Pick<Runtime, 'after'>,
  begin: () => StreamEnd,
  holdMs: number = MAX_HOLD_MS,
): Promise<AsyncIterable<Step>> {
  const source = steps[Symbol.asyncIterator]() as AsyncIterator<Step, undefined>
  const beginning = await readBeginning(source, runtime, holdMs)
  return passOn(beginning, source, begin())
}

async function readBeginning(
  source: AsyncIterator<Step, undefined>,
  runtime: Pick<Runtime, 'after'>,
  holdMs: number,
): Promise<Beginning> {
  const held: Result[] = []
  let forget = (): void => {}
  const patience = new Promise<'over'>((resolve) => {
    forget = runtime.after(holdMs, () => resolve('over'))
  })
  try {
    for (;;) {
      const pending = source.next()
      const result = await Promise.race([pending, patience])
      if (result === 'over') return { held, pending }
      held.push(result)
      if (result.done === true || result.value.events.some(isContent)) return { held, pending: undefined }
    }
  } finally {
    forget()
  }
}

function passOn(beginning: Beginning, source: AsyncIterator<Step, undefined>, end: StreamEnd): AsyncIterable<Step> {
  const { held } = beginning
  let { pending } = beginning
  let ended = false
  // Whoever reads on sees the failure, and nobody may read on.
  pending?.catch(() => {})
  const finish = (tell: () => void): void => {
    if (!ended) tell()
    ended = true
  }
  const next = async (): Promise<Result> => {
    const awaited = held.shift() ?? pending ?? source.next()
    if (awaited === pending) pending = undefined
    try {
      const result = await awaited
      if (result.done === true || result.value.events.some(isDone)) finish(end.whole)
      return result
    } catch (error) {
      finish(() => end.broken(error))
      throw error
    }
  }
  const leave = async (): Promise<Result> => {
    finish(end.left)
    held.length = 0
    return (await source.return?.()) ?? { done: true, value: undefined }
  }
  return { [Symbol.asyncIterator]: () => ({ next, return: leave }) }
}

function isDone(event: AnswerEvent): boolean {
  return event.type === 'done'
}

/** Greetings, empty beginnings of blocks and token counts are not what a caller waits for. */
function isContent(event: AnswerEvent): boolean {
  switch (event.type) {
    case 'answer-start':
    case 'text-start':
    case 'thinking-start':
    case 'usage':
      return false
    case 'text-delta':
      return event.text !== ''
    default:
      return true
  }
}
