/** Paused computations, oldest first. */
const waiting: (() => void)[] = []
/** After a step longer than this, such as parsing a body of 30 MB, computations pause for the duration of the step. */
const LONG_STEP_MS = 10
const MAX_PAUSE_MS = 50

/** References to the original functions, because fake timers in a test may never fire. */
const wait: (callback: () => void, ms: number) => unknown = setTimeout
const runLater: (callback: () => void) => unknown =
  typeof setImmediate === 'function' ? setImmediate : (callback) => wait(callback, 0)

let isScheduled = false
/** Undefined if no step is running. */
let stepStart: number | undefined
let pausedUntil = 0

/**
 * Resolves in a later turn of the event loop. Only one of several computations continues per turn, so a short request
 * waits for at most one step of one computation.
 */
export function yieldToEventLoop(): Promise<void> {
  endStep()
  return new Promise((resolve) => {
    waiting.push(resolve)
    if (!isScheduled) afterTurn()
  })
}

function endStep(): void {
  if (stepStart === undefined) return
  const now = performance.now()
  const duration = now - stepStart
  stepStart = undefined
  if (duration > LONG_STEP_MS) pausedUntil = now + Math.min(duration, MAX_PAUSE_MS)
}

function continueOne(): void {
  endStep()
  isScheduled = false
  if (waiting.length === 0) return
  const pauseMs = pausedUntil === 0 ? 0 : pausedUntil - performance.now()
  pausedUntil = 0
  if (pauseMs > 0) {
    isScheduled = true
    wait(continueOne, pauseMs)
    return
  }
  stepStart = performance.now()
  waiting.shift()?.()
  afterTurn()
}

function afterTurn(): void {
  isScheduled = true
  runLater(continueOne)
}
