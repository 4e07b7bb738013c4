import { expect, it } from 'vitest'
import { yieldToEventLoop } from '../../src/tokens/event-loop.ts'

it('continues one long computation per turn of the event loop, the oldest first', async () => {
  const steps: string[] = []
  const work = async (name: string): Promise<void> => {
    for (let step = 1; step <= 3; step++) {
      await yieldToEventLoop()
      steps.push(`${name}${step}`)
    }
  }
  let isDone = false
  const all = Promise.all([work('a'), work('b'), work('c')]).then(() => (isDone = true))
  const perTurn: number[] = []
  while (!isDone) {
    const before = steps.length
    await new Promise((resolve) => setImmediate(resolve))
    perTurn.push(steps.length - before)
  }
  await all
  expect(Math.max(...perTurn)).toBe(1)
  expect(steps).toEqual(['a1', 'b1', 'c1', 'a2', 'b2', 'c2', 'a3', 'b3', 'c3'])
})
