/** Work that waits for the event loop, oldest first. */
const waiting: (() => void)[] = []
/** A step that cannot be divided, such as parsing a body of 30 MB, may be longer; then as long a rest follows. */
const LONG_STEP_MS = 10
const MAX_REST_MS = 50

/** The platform's own timers: those that a test fakes may never fire, and all later work would wait for them. */
const wait: (go: () => void, ms: number) => unknown = setTimeout
const runLater: (go: () => void) => unknown = typeof setImmediate === 'function' ? setImmediate : (go) => wait(go, 0)

let isScheduled = false
/** Undefined when no step is under way. */
let stepBegan: number | undefined
let restsUntil = 0

/**
 * Yields to the event loop, then continues. With several long computations, one continues in each turn, and none
 * directly after a long step. A request that needs a few turns then waits for one step, not for several.
 */
export function yieldToEventLoop(): Promise<void> {
  endStep()
  return new Promise((resolve) => {
    waiting.push(resolve)
    if (!isScheduled) afterTurn()
  })
}

/** A step ends where its computation yields again, or else with the turn. */
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
