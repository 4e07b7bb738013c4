import { describe, expect, it } from 'vitest'
import { RequestTracker } from '../../src/kernel/request-tracker.ts'
import { waitForQuiet } from '../../src/plugins/batches/wait-for-quiet.ts'
import { manualRuntime } from '../support/manual-runtime.ts'
import { noNetwork } from '../support/no-network.ts'

function setUp() {
  const runtime = manualRuntime(noNetwork)
  const requestTracker = new RequestTracker()
  const stopping = new AbortController()
  const went: string[] = []
  const wait = (name: string): Promise<void> =>
    waitForQuiet(requestTracker, stopping.signal, runtime).then(() => void went.push(name))
  const enter = (count: number): void => {
    for (let id = 1; id <= count; id += 1) requestTracker.enter(`request-${id}`)
  }
  return { runtime, requestTracker, stopping, went, wait, enter }
}

describe('batch work', () => {
  it('continues immediately while few requests are running', async () => {
    const { requestTracker, enter, stopping, runtime } = setUp()
    enter(8)

    await expect(waitForQuiet(requestTracker, stopping.signal, runtime)).resolves.toBeUndefined()
  })

  it('waits while many requests are running, until enough of them are answered', async () => {
    const { requestTracker, enter, wait, went, runtime } = setUp()
    enter(10)
    const waiting = Promise.all([wait('first'), wait('second')])

    requestTracker.leave('unknown')
    requestTracker.leave('request-1')
    await Promise.resolve()
    const early = [...went]
    requestTracker.leave('request-2')
    await waiting

    expect(early).toEqual([])
    expect(went).toEqual(['first', 'second'])
    expect(runtime.pending()).toBe(0)
  })

  it('continues after the maximum wait, so that it is not starved', async () => {
    const { enter, wait, runtime } = setUp()
    enter(9)
    const waiting = wait('first')
    runtime.advance(30_000)

    await waiting
  })

  it('continues when its signal is aborted', async () => {
    const { enter, wait, stopping, runtime } = setUp()
    enter(9)
    const waiting = wait('first')
    stopping.abort()

    await waiting
    expect(runtime.pending()).toBe(0)
  })
})
