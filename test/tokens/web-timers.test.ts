import { afterEach, it, vi } from 'vitest'

afterEach(() => {
  vi.unstubAllGlobals()
  vi.resetModules()
})

/** Loads the module as on a platform with this `setImmediate`. */
async function loadWith(immediate: unknown): Promise<() => Promise<void>> {
  vi.stubGlobal('setImmediate', immediate)
  vi.resetModules()
  return (await import('../../src/tokens/event-loop.ts')).yieldToEventLoop
}

function notSupported(): never {
  throw new Error('A Node.js API is used (setImmediate) which is not supported in the Edge Runtime.')
}

it.each([
  ['throws, as in the Edge Runtime', notSupported],
  ['is missing', undefined],
])('computations continue where setImmediate %s', async (_case, immediate) => {
  const yieldToEventLoop = await loadWith(immediate)

  await Promise.all([yieldToEventLoop(), yieldToEventLoop()])
  await yieldToEventLoop()
})

it('a computation continues after the request of another one has ended with its timers', async () => {
  const { setTimeout } = globalThis
  let isEnded = true
  vi.stubGlobal('setTimeout', (callback: () => void, ms: number) => (isEnded ? 0 : setTimeout(callback, ms)))
  const yieldToEventLoop = await loadWith(undefined)

  void yieldToEventLoop()
  isEnded = false

  await yieldToEventLoop()
})
