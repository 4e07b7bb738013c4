import { describe, expect, it } from 'vitest'
import { EmbeddingQueue } from '../../src/embedder/embedding-queue.ts'

interface Run {
  readonly texts: readonly string[]
  finish(): void
  fail(error: Error): void
}

/** A queue whose runs and timers end when the test says so. */
function setUp(options: { readonly maxTexts?: number } = {}) {
  const runs: Run[] = []
  const timers = new Map<number, () => void>()
  const stuck: string[] = []
  let timerCount = 0
  const queue = new EmbeddingQueue({
    run: (texts) =>
      new Promise((resolve, reject) => {
        const finish = (): void => resolve(texts.map((text) => Float32Array.of(Number(text))))
        runs.push({ texts, finish, fail: reject })
      }),
    onStuck: ({ message }) => stuck.push(message),
    timeoutMs: 100,
    maxTexts: options.maxTexts ?? 100,
    after: (_, callback) => {
      const id = timerCount++
      timers.set(id, callback)
      return () => timers.delete(id)
    },
  })
  const settle = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))
  const finishAll = async (): Promise<void> => {
    for (let index = 0; index < runs.length; index++) {
      runs[index]?.finish()
      await settle()
    }
  }
  return { queue, runs, timers, stuck, settle, finishAll }
}

const numbers = (from: number, to: number): string[] => Array.from({ length: to - from }, (_, at) => String(from + at))

describe('the queue of the local embedder', () => {
  it('runs four texts at a time and returns the vectors in order', async () => {
    const { queue, runs, finishAll } = setUp()
    const call = queue.embed(numbers(0, 10))
    await finishAll()

    expect(runs.map(({ texts }) => texts.length)).toEqual([4, 4, 2])
    expect((await call).map(([value]) => value)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
  })

  it('lets a short call run between the parts of a long one', async () => {
    const { queue, runs, finishAll } = setUp()
    const calls = [queue.embed(numbers(0, 12)), queue.embed(numbers(90, 91))]
    await finishAll()
    await Promise.all(calls)

    expect(runs.map(({ texts }) => texts[0])).toEqual(['0', '90', '4', '8'])
  })

  it('completes one of several long calls before it starts the next one', async () => {
    const { queue, runs, finishAll } = setUp()
    const calls = [queue.embed(numbers(0, 8)), queue.embed(numbers(50, 58))]
    await finishAll()
    await Promise.all(calls)

    expect(runs.map(({ texts }) => texts[0])).toEqual(['0', '4', '50', '54'])
  })

  it('rejects a call that exceeds maxQueuedTexts, and accepts it after the others have ended', async () => {
    const { queue, finishAll } = setUp({ maxTexts: 8 })
    const first = queue.embed(numbers(0, 6))
    await expect(queue.embed(numbers(0, 3))).rejects.toMatchObject({
      kind: 'overloaded',
      message: expect.stringContaining('has 6 texts in its queue and got 3 more. Expected at most 8.'),
    })
    await finishAll()
    await first
    const next = queue.embed(numbers(0, 3))
    await finishAll()

    expect(await next).toHaveLength(3)
  })

  it('does not run the rest of an aborted call', async () => {
    const { queue, runs, finishAll, settle } = setUp()
    const aborting = new AbortController()
    const call = queue.embed(numbers(0, 12), aborting.signal)
    const other = queue.embed(numbers(50, 51))
    aborting.abort(new Error('The caller left.'))

    await expect(call).rejects.toThrow('The caller left.')
    await settle()
    await finishAll()
    await other
    expect(runs.map(({ texts }) => texts[0])).toEqual(['0', '50'])
  })

  it('rejects an aborted signal at once', async () => {
    const { queue, runs } = setUp()

    await expect(queue.embed(['1'], AbortSignal.abort(new Error('The caller left.')))).rejects.toThrow(
      'The caller left.',
    )
    expect(runs).toEqual([])
  })

  it('rejects the calls whose time is over, and reports a run that does not end', async () => {
    const { queue, timers, stuck, settle } = setUp()
    const call = queue.embed(numbers(0, 12))
    const rejection = expect(call).rejects.toMatchObject({ kind: 'upstream-timeout' })
    await settle()
    for (const fire of Array.from(timers.values())) fire()
    await rejection
    await settle()

    expect(stuck).toEqual(['The local embedder did not respond within 100 ms.'])
    expect(timers.size).toBe(0)
  })

  it('rejects only the call whose run fails', async () => {
    const { queue, runs, settle, finishAll } = setUp()
    const calls = [queue.embed(['1']), queue.embed(['2'])]
    const results = Promise.allSettled(calls)
    await settle()
    runs[0]?.fail(new Error('broken'))
    await settle()
    await finishAll()

    expect((await results).map(({ status }) => status)).toEqual(['rejected', 'fulfilled'])
  })
})
