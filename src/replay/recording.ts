import { GatewayError } from '../core/errors.ts'
import { countEvents, skipEvents } from './events.ts'
import type { Place } from './room.ts'

/** The last text of a stream; `isWhole` is false for one that ends in an error. */
export interface LastText {
  readonly last: string
  readonly isWhole: boolean
}

/** Where the texts come from: server-sent events, each text one or several whole ones. */
export type TextSource = AsyncGenerator<string | LastText, void, undefined>

/** Texts for one reader. */
export interface TextReader {
  next(): Promise<IteratorResult<string, void>>
  /** The reader leaves: a `next` that waits is done at once. Never rejects. */
  return(): Promise<unknown>
}

/**
 * One event stream that many may read, each at its own pace and from any event on. It is drawn from its source only as
 * fast as the fastest of them reads.
 */
export interface Recording {
  /** For the caller whose request it is. Loses nothing, even when the recording has grown too large for others. */
  readonly original: TextReader
  /**
   * Everything after so many events, from the beginning on: at once what is there, then what comes.
   * Its `next` rejects with `too-large` when the recording has grown too large to be followed.
   */
  follow(after: number): TextReader
  /** How many events there are until now; 0 when they are not kept. */
  count(): number
  /** Draws all that is left, for nobody. */
  drain(): Promise<void>
  /** Ends the source; what was recorded by then ends in `farewell`. */
  stop(): Promise<void>
  /** Resolves when nothing more will come; never rejects. */
  readonly ended: Promise<Ending>
}

export interface Ending {
  readonly isWhole: boolean
  /** All events; undefined where they were too many to keep. */
  readonly text: string | undefined
}

export interface RecordingOptions {
  /** Undefined: nothing is kept, and there is only the original reader. */
  readonly place: Place | undefined
  /** The events that end a stream which was stopped. */
  readonly farewell: () => string
}

interface Reel {
  /** Texts from `first` on: those before have been let go. */
  readonly texts: string[]
  first: number
  isKept: boolean
  isOver: boolean
  isWhole: boolean
  failure: { readonly error: unknown } | undefined
  /** Where the original reader stands; undefined when it has left. */
  originalAt: number | undefined
}

export function createRecording(source: TextSource, { place, farewell }: RecordingOptions): Recording {
  const reel: Reel = {
    texts: [],
    first: 0,
    isKept: place !== undefined,
    isOver: false,
    isWhole: false,
    failure: undefined,
    originalAt: 0,
  }
  let drawing: Promise<void> | undefined
  let hasStarted = false
  let tellEnd: (ending: Ending) => void = () => {}
  const ended = new Promise<Ending>((resolve) => {
    tellEnd = resolve
  })

  function push(text: string): void {
    if (reel.isKept && place?.take(2 * text.length) !== true) letGo()
    if (text !== '' && (reel.isKept || reel.originalAt !== undefined)) reel.texts.push(text)
  }

  /** From now on only what the original reader has not read yet is held. */
  function letGo(): void {
    reel.isKept = false
    const read = (reel.originalAt ?? reel.first + reel.texts.length) - reel.first
    reel.texts.splice(0, read)
    reel.first += read
    place?.leave()
  }

  /** What was recorded takes room until the first caller has read it, or has left. */
  function leavePlace(): void {
    place?.leave()
  }

  function finish(isWhole: boolean): void {
    if (reel.isOver) return
    reel.isOver = true
    reel.isWhole = isWhole
    tellEnd({ isWhole, text: reel.isKept ? reel.texts.join('') : undefined })
    if (reel.originalAt === undefined) leavePlace()
  }

  /** What ended without its last text was left or stopped, and says so. */
  function abandon(): void {
    if (reel.isOver) return
    push(farewell())
    finish(false)
  }

  async function draw(): Promise<void> {
    hasStarted = true
    try {
      const { value, done } = await source.next()
      if (reel.isOver) return
      if (done === true) abandon()
      else if (typeof value === 'string') push(value)
      else {
        push(value.last)
        finish(value.isWhole)
        await source.return()
      }
    } catch (error) {
      reel.failure = { error }
      finish(false)
    } finally {
      drawing = undefined
    }
  }

  const pull = (): Promise<void> => (drawing ??= draw())

  async function drain(): Promise<void> {
    while (!reel.isOver) await pull()
  }

  let stopping: Promise<void> | undefined
  async function endSource(): Promise<void> {
    // A generator that never started would run no `finally`, and nothing would settle.
    if (!hasStarted) await pull()
    if (reel.isOver) return
    await source.return().catch(() => {})
    abandon()
  }

  return {
    original: originalReader(reel, pull, leavePlace),
    follow: (after) => follower(reel, pull, after),
    count: () => (reel.isKept ? reel.texts.reduce((sum, text) => sum + countEvents(text), 0) : 0),
    drain,
    stop: () => (stopping ??= endSource()),
    ended,
  }
}

const DONE = { value: undefined, done: true } as const

function originalReader(reel: Reel, pull: () => Promise<void>, finished: () => void): TextReader {
  const waiting = waiter()
  return {
    next: async () => {
      while (reel.originalAt !== undefined) {
        const text = reel.texts[reel.originalAt - reel.first]
        if (text !== undefined) {
          reel.originalAt += 1
          if (!reel.isKept) {
            reel.texts.shift()
            reel.first += 1
          }
          return { value: text, done: false }
        }
        if (reel.isOver) {
          finished()
          return atTheEnd(reel)
        }
        await waiting.until(pull())
      }
      return DONE
    },
    return: async () => {
      reel.originalAt = undefined
      if (reel.isOver) finished()
      if (!reel.isKept) reel.texts.length = 0
      waiting.stop()
    },
  }
}

function follower(reel: Reel, pull: () => Promise<void>, after: number): TextReader {
  const waiting = waiter()
  let at = 0
  let toSkip = after
  let hasLeft = false
  return {
    next: async () => {
      while (!hasLeft) {
        if (!reel.isKept) throw tooLarge()
        const text = reel.texts[at]
        if (text === undefined && reel.isOver) return atTheEnd(reel)
        if (text === undefined) {
          await waiting.until(pull())
          continue
        }
        at += 1
        const rest = toSkip === 0 ? text : skipEvents(text, toSkip)
        if (toSkip > 0) toSkip = Math.max(0, toSkip - countEvents(text))
        if (rest !== '') return { value: rest, done: false }
      }
      return DONE
    },
    return: async () => {
      hasLeft = true
      waiting.stop()
    },
  }
}

function atTheEnd(reel: Reel): typeof DONE {
  if (reel.failure !== undefined) throw reel.failure.error
  return DONE
}

/** Waits for one thing at a time, and can be told to wait no longer: racing a long-lived promise would hold memory. */
function waiter(): { readonly until: (work: Promise<void>) => Promise<void>; readonly stop: () => void } {
  let wake: () => void = () => {}
  return {
    until: (work) =>
      new Promise((resolve) => {
        wake = resolve
        work.then(resolve, resolve)
      }),
    stop: () => wake(),
  }
}

function tooLarge(): GatewayError {
  return new GatewayError(
    'too-large',
    'This answer cannot be followed: it, or all that are being recorded, grew too large to be kept. Ask anew.',
  )
}
