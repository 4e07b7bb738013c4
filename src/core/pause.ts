/** Longest stretch of work in milliseconds before the event loop runs. */
const STRETCH_MS = 8
/** UTF-16 units of a text that are read between two looks at the clock. */
const SLICE = 32_768

/**
 * Returns a promise when the caller must let the event loop run before it continues, else undefined.
 * Loops call it once per item, so that a long conversation never blocks other requests.
 */
export type Pause = () => Promise<void> | undefined

/** Returns a `Pause` that yields after every few milliseconds of work. */
export function createPause(yieldToEventLoop: () => Promise<void>): Pause {
  let since = performance.now()
  const afterTurn = async (): Promise<void> => {
    await yieldToEventLoop()
    since = performance.now()
  }
  return () => {
    if (performance.now() - since < STRETCH_MS) return undefined
    return afterTurn()
  }
}

/** Sums what `measure` returns for the slices of a text, with pauses between them. */
export async function measureInSlices(text: string, measure: (text: string) => number, pause: Pause): Promise<number> {
  if (text.length <= SLICE) return measure(text)
  let sum = 0
  for (let at = 0; at < text.length; at += SLICE) {
    sum += measure(text.slice(at, at + SLICE))
    await pause()
  }
  return sum
}
