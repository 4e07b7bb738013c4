const waitingComputations: (() => void)[] = []
/** After a longer step, such as parsing 30 MB, computations pause for as long as it took, at most `MAX_PAUSE_MS`. */
const LONG_STEP_MS = 10
const MAX_PAUSE_MS = 50

/** The timer functions are saved when this module loads, because fake timers in tests may never fire. */
const wait: (callback: () => void, ms: number) => unknown = setTimeout
const runLater = globalThis.setImmediate

let isScheduled = false
let stepStart: number | undefined
let pausedUntil = 0

/**
 * Only one waiting computation continues per turn of the event loop, so that other requests run between two steps. On
 * platforms whose timers belong to a request, each computation waits for its own timer: a shared one may never fire.
 */
export const yieldToEventLoop: () => Promise<void> = canShareImmediates() ? waitForTurn : waitForTimer

/** In the Edge Runtime, `setImmediate` exists and throws. In Workers, it is missing or throws outside of a request. */
function canShareImmediates(): boolean {
  try {
    clearImmediate(runLater(() => {}))
    return true
  } catch {
    return false
  }
}

function waitForTimer(): Promise<void> {
  return new Promise((resolve) => void wait(resolve, 0))
}

function waitForTurn(): Promise<void> {
  endStep()
  return new Promise((resolve) => {
    waitingComputations.push(resolve)
    if (!isScheduled) scheduleNext()
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
  if (waitingComputations.length === 0) return
  const pauseMs = pausedUntil === 0 ? 0 : pausedUntil - performance.now()
  pausedUntil = 0
  if (pauseMs > 0) {
    isScheduled = true
    wait(continueOne, pauseMs)
    return
  }
  stepStart = performance.now()
  waitingComputations.shift()?.()
  scheduleNext()
}

function scheduleNext(): void {
  isScheduled = true
  runLater(continueOne)
}
