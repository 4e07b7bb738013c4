/** Computations that wait for their turn, oldest first. */
const waiting: (() => void)[] = []
/** A step that cannot be divided, such as parsing a body of 30 MB, may take longer. A rest of the same duration follows it. */
const LONG_STEP_MS = 10
const MAX_REST_MS = 50

/** Read at load time: fake timers of a test may never fire, and all later computations would wait for them. */
const wait: (go: () => void, ms: number) => unknown = setTimeout
const runLater: (go: () => void) => unknown = typeof setImmediate === 'function' ? setImmediate : (go) => wait(go, 0)

let isScheduled = false
/** Undefined if no step is running. */
let stepBegan: number | undefined
let restsUntil = 0

/**
 * Resolves in a later turn of the event loop. Of several long computations only one continues per turn, and none
 * directly after a long step, so that a short request waits for one step of one computation.
 */
export function yieldToEventLoop(): Promise<void> {
  endStep()
  return new Promise((resolve) => {
    waiting.push(resolve)
    if (!isScheduled) afterTurn()
  })
}

/** A step ends when its computation yields again, or with the turn. */
function endStep(): void {
  if (stepBegan === undefined) return
  const now = performance.now()
  const took = now - stepBegan
  stepBegan = undefined
  if (took > LONG_STEP_MS) restsUntil = now + Math.min(took, MAX_REST_MS)
}

function continueOne(): void {
  endStep()
  isScheduled = false
  if (waiting.length === 0) return
  const rest = restsUntil === 0 ? 0 : restsUntil - performance.now()
  restsUntil = 0
  if (rest > 0) {
    isScheduled = true
    wait(continueOne, rest)
    return
  }
  stepBegan = performance.now()
  waiting.shift()?.()
  afterTurn()
}

function afterTurn(): void {
  isScheduled = true
  runLater(continueOne)
}
