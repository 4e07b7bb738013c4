import { describe, expect, it } from 'vitest'
import { createRequestTracker } from '../../src/wiring/endpoints.ts'
import { manualRuntime } from '../support/manual-runtime.ts'
import { noNetwork } from '../support/no-network.ts'

function setUp() {
  const runtime = manualRuntime(noNetwork)
  const requestTracker = createRequestTracker({ after: runtime.after, maxRequests: 2, maxWaitMs: 1000 })
  const stopping = new AbortController()
  const went: string[] = []
  const wait = (name: string): Promise<void> =>
    requestTracker.waitForQuiet(stopping.signal).then(() => void went.push(name))
  const enter = (...ids: string[]): void => ids.forEach((id) => requestTracker.enter(id))
  return { runtime, requestTracker, stopping, went, wait, enter }
}

describe('batch work', () => {
  it('continues immediately while few requests are running', async () => {
    const { requestTracker, enter, stopping } = setUp()
    enter('a', 'b')

    await expect(requestTracker.waitForQuiet(stopping.signal)).resolves.toBeUndefined()
  })

  it('waits while many requests are running, until enough of them are answered', async () => {
    const { requestTracker, enter, wait, went, runtime } = setUp()
    enter('a', 'b', 'c', 'd')
    const waiting = Promise.all([wait('first'), wait('second')])

    requestTracker.leave('unknown')
    requestTracker.leave('a')
    await Promise.resolve()
    const early = [...went]
    requestTracker.leave('b')
    await waiting

    expect(early).toEqual([])
    expect(went).toEqual(['first', 'second'])
    expect(runtime.pending()).toBe(0)
  })

  it('continues after the maximum wait, so that it is not starved', async () => {
    const { enter, wait, runtime } = setUp()
    enter('a', 'b', 'c')
    const waiting = wait('first')
    runtime.advance(1000)

    await waiting
  })

  it('continues when its signal is aborted', async () => {
    const { enter, wait, stopping, runtime } = setUp()
    enter('a', 'b', 'c')
    const waiting = wait('first')
    stopping.abort()

    await waiting
    expect(runtime.pending()).toBe(0)
  })
})
