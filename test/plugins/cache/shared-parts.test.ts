import { describe, expect, it } from 'vitest'
import { createMemoryResponseStore } from '../../../src/plugins/cache/response-store.ts'
import { Cancellation } from '../../../src/core/async.ts'
import type { ResponseClaims, ResponseStore, VectorIndex } from '../../../src/core/cache.ts'
import { chatPrompt, createFixture, textResponse } from './fixture.ts'

const QUESTION = 'What is the capital of France?'

function memoryResponses(): ResponseStore {
  return createMemoryResponseStore({ maxEntries: 10, maxBytes: 1e6, indexBytes: () => 0, onRemove: () => {} })
}

/** Runs all work that does not wait for a timer. */
async function flushTasks(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve()
}

describe('an answer store and an index that never answer', () => {
  function createHangingCache(): {
    readonly responses: ResponseStore
    readonly index: VectorIndex
    readonly calls: () => number
  } {
    let calls = 0
    const hang = (): Promise<never> => {
      calls += 1
      return new Promise(() => {})
    }
    return {
      responses: { ...memoryResponses(), get: hang, put: hang, hasComparable: hang, amend: hang, remove: hang },
      index: { add: hang, nearest: hang, remove: hang, clear: hang },
      calls: () => calls,
    }
  }

  it('cause a miss at the deadline and are paused for ten seconds after three failures', async () => {
    const { responses, index, calls } = createHangingCache()
    const { recall, runtime, cache } = createFixture({ responses, index, timeoutMs: 500 })
    for (let count = 1; count <= 3; count += 1) {
      const recalled = recall(QUESTION)
      await flushTasks()
      runtime.advance(500)
      expect(await recalled).toBeUndefined()
    }
    expect(calls()).toBe(3)
    expect(await recall(QUESTION)).toBeUndefined()
    expect(calls()).toBe(3)
    expect(cache.stats().failures).toBe(4)

    runtime.advance(10_000)
    const recalled = recall(QUESTION)
    await flushTasks()
    runtime.advance(500)
    expect(await recalled).toBeUndefined()
    expect(calls()).toBe(4)
  })

  it('delay a write by at most the deadline of one call', async () => {
    const { responses, index } = createHangingCache()
    const { ask, runtime, cache } = createFixture({
      responses: { ...responses, get: () => undefined },
      index,
      timeoutMs: 500,
    })
    const asked = ask(QUESTION)
    await flushTasks()
    runtime.advance(500)
    const miss = await asked
    const stored = miss.hit ? true : miss.store(textResponse('Paris'), 10)
    const flushed = cache.flush()
    runtime.advance(500)

    expect(await stored).toBe(false)
    await flushed
  })
})

describe('a claim on an answer', () => {
  function createClaimTest(changes: Partial<ResponseClaims> = {}): ResponseStore & { readonly taken: Set<string> } {
    const taken = new Set<string>()
    const claims: ResponseClaims = {
      acquire: async (id) => {
        const isFree = !taken.has(id)
        taken.add(id)
        return isFree
      },
      isHeld: async (id) => taken.has(id),
      release: async (id) => void taken.delete(id),
      ...changes,
    }
    return { ...memoryResponses(), claims, taken }
  }

  async function twoMisses(responses: ResponseStore, cancellation?: Cancellation) {
    const { ask, runtime } = createFixture({ responses })
    const first = await ask(QUESTION)
    const second = await ask(chatPrompt(QUESTION), cancellation === undefined ? {} : { cancellation })
    if (first.hit || second.hit || first.claim === undefined || second.claim === undefined) {
      throw new Error('two misses with a claim were expected')
    }
    return { first, second, claims: [first.claim, second.claim] as const, runtime }
  }

  it('is taken by the first request, whose answer the second request gets', async () => {
    const responses = createClaimTest()
    const { first, claims, runtime } = await twoMisses(responses)
    expect(await claims[0].join()).toBeUndefined()
    const joined = claims[1].join()
    await flushTasks()
    await first.store(textResponse('Paris'), 10)
    await claims[0].release()
    runtime.advance(25)
    expect(await joined).toMatchObject({ hit: true, completion: textResponse('Paris') })
    expect(responses.taken.size).toBe(0)
  })

  it('lets the second request call the upstream if the first request stored nothing', async () => {
    const { claims, runtime } = await twoMisses(createClaimTest())
    await claims[0].join()
    const joined = claims[1].join()
    await flushTasks()
    await claims[0].release()
    runtime.advance(25)
    expect(await joined).toBeUndefined()
  })

  it('delays the second request by at most 30 seconds', async () => {
    const responses = createClaimTest()
    const { claims, runtime } = await twoMisses(responses)
    await claims[0].join()
    let isOver = false
    const joined = claims[1].join().finally(() => (isOver = true))
    for (let waited = 0; waited < 29_000; waited += 500) {
      await flushTasks()
      runtime.advance(500)
    }
    await flushTasks()
    expect(isOver).toBe(false)
    for (let waited = 0; waited < 2_000; waited += 500) {
      await flushTasks()
      runtime.advance(500)
    }
    expect(await joined).toBeUndefined()
    await claims[1].release()
    expect(responses.taken.size).toBe(1)
  })

  it('does not delay a request if the storage fails or the caller has disconnected', async () => {
    const failing = await twoMisses(createClaimTest({ acquire: () => Promise.reject(new Error('down')) }))
    expect(await failing.claims[1].join()).toBeUndefined()

    const cancellation = new Cancellation()
    const left = await twoMisses(createClaimTest(), cancellation)
    await left.claims[0].join()
    const joined = left.claims[1].join()
    await flushTasks()
    cancellation.cancel(new Error('left'))
    await expect(joined).rejects.toThrow('left')
    expect(left.runtime.pending()).toBe(0)
  })
})
