import type { Step } from '../../src/core/answer.ts'
import type { AnswerSource } from '../../src/core/answer-source.ts'
import { AnswerTranslator } from '../../src/formats/answer-translator.ts'
import type { StepWriter } from '../../src/formats/format.ts'
import { brokenUpstream, isTooDeep } from '../../src/providers/upstream-failure.ts'
import { isSource, sourceOfSteps, UpstreamStream } from '../../src/providers/upstream-stream.ts'

/** The steps of a streamed answer, drawn one by one. */
export type StepsReader = AsyncIterableIterator<Step>

type Streamed = AsyncIterable<Step> | AnswerSource | UpstreamStream

/** A translator that writes nothing and keeps the steps, for `stepsOf`. */
export function stepTranslator(source: AnswerSource, provider = 'tiny'): AnswerTranslator {
  return new AnswerTranslator({
    format: source.format,
    writer: new StepQueue(),
    isNumbered: false,
    broken: (what, cause) => brokenUpstream(provider, what, cause),
    checkEvent: (data) => {
      if (isTooDeep(data)) throw brokenUpstream(provider, 'sent an event that is nested too deep')
    },
  })
}

/** Reads an answer through a translator, as the gateway does. The source is paused while no step is waited for. */
export function stepsOf(answer: Streamed): StepsReader {
  if (answer instanceof UpstreamStream) return read(answer)
  const source = isSource(answer) ? answer : sourceOfSteps(answer, 'tiny')
  const stream = new UpstreamStream(source, stepTranslator(source))
  const queue = queueOf(stream)
  stream.open({ after: () => () => {} }, 0).catch((error: unknown) => queue.break(error))
  return read(stream)
}

function read(stream: UpstreamStream): StepsReader {
  const queue = queueOf(stream)
  queue.onDemand = (isWanted) => (isWanted ? stream.resume() : stream.pause())
  stream.attach({ onChunk: () => {}, onWhole: () => queue.end(), onError: (error) => queue.break(error) })
  stream.pause()
  const steps: StepsReader = {
    [Symbol.asyncIterator]: () => steps,
    next: () => queue.next(),
    return: async () => {
      stream.abort()
      queue.end()
      return { done: true, value: undefined }
    },
  }
  return steps
}

function queueOf({ translator }: UpstreamStream): StepQueue {
  if (translator.writer instanceof StepQueue) return translator.writer
  throw new Error('The translator of this stream is not one of stepTranslator')
}

type Result = IteratorResult<Step, undefined>

interface Waiting {
  readonly resolve: (result: Result) => void
  readonly reject: (error: unknown) => void
}

class StepQueue implements StepWriter {
  onDemand: ((isWanted: boolean) => void) | undefined
  readonly #steps: Step[] = []
  #waiting: Waiting | undefined
  #ending: { readonly error?: unknown } | undefined

  write(step: Step): readonly [] {
    const waiting = this.#waiting
    this.#waiting = undefined
    if (waiting === undefined) this.#steps.push(step)
    else waiting.resolve({ done: false, value: step })
    this.onDemand?.(false)
    return []
  }

  end(): readonly [] {
    this.#finish({})
    return []
  }

  break(error: unknown): void {
    this.#finish({ error })
  }

  next(): Promise<Result> {
    const step = this.#steps.shift()
    if (step !== undefined) return Promise.resolve({ done: false, value: step })
    const ending = this.#ending
    if (ending !== undefined) return 'error' in ending ? Promise.reject(ending.error) : Promise.resolve(ENDED)
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject }
      this.onDemand?.(true)
    })
  }

  #finish(ending: { readonly error?: unknown }): void {
    if (this.#ending !== undefined) return
    this.#ending = ending
    const waiting = this.#waiting
    this.#waiting = undefined
    if ('error' in ending) waiting?.reject(ending.error)
    else waiting?.resolve(ENDED)
  }
}

const ENDED: Result = { done: true, value: undefined }
