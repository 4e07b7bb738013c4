import { describe, expect, it } from 'vitest'
import type { Completion, StreamChunk } from '../../src/core/completion.ts'
import { GatewayError, type FailureDetails, type FailureKind } from '../../src/core/errors.ts'
import type { Provider, ProviderCall, Route } from '../../src/core/ports.ts'
import type { UpstreamCall } from '../../src/upstream/attempts.ts'
import { createFailover } from '../../src/providers/failover.ts'
import { type FailoverOptions } from '../../src/providers/upstream-attempt.ts'
import { createCircuitBreaker } from '../../src/providers/circuit-breaker.ts'
import { failoverRequest } from '../support/failover-request.ts'
import { manualRuntime, type ManualRuntime } from '../support/manual-runtime.ts'
import { collectChunks, failureOf, testModel, textOf, timeouts } from '../support/provider-call.ts'
import { noNetwork } from '../support/no-network.ts'
import { createChunkStream } from '../support/chunk-reader.ts'
import { tinyPrompt } from '../support/tiny-format.ts'

const whole: Completion = { id: 'c', model: 'm', parts: [{ type: 'text', text: 'yes' }], finish: 'stop' }
const greet: StreamChunk = { parts: [{ type: 'response-start', id: 'c', model: 'm' }] }
const say = (text: string): StreamChunk => ({ parts: [{ type: 'text-delta', text }] })
const done: StreamChunk = { parts: [{ type: 'done' }] }

/** The result of one provider call: an error to throw, a complete response, or the chunks of a stream. */
type Turn = Error | Completion | readonly (StreamChunk | Error)[]

interface Played extends Route {
  readonly calls: ProviderCall[]
  readonly left: () => number
}

function createScriptedProvider(name: string, ...turns: readonly Turn[]): Played {
  const calls: ProviderCall[] = []
  let left = 0
  const turn = (call: ProviderCall): Turn => {
    const next = turns[Math.min(calls.push(call), turns.length) - 1]
    if (next === undefined) throw new Error('nothing to play')
    if (next instanceof Error) throw next
    return next
  }
  const provider: Provider = {
    name,
    dialect: 'chat',
    models: [testModel],
    model: () => testModel,
    complete: async (call) => ({ response: turn(call) as Completion, ignored: [name] }),
    stream: async (call) => ({
      response: stream(turn(call) as readonly (StreamChunk | Error)[], () => (left += 1)),
      ignored: [name],
    }),
  }
  return { provider, model: testModel, calls, left: () => left }
}

async function* stream(steps: readonly (StreamChunk | Error)[], leave: () => void): AsyncGenerator<StreamChunk> {
  let ended = false
  try {
    for (const step of steps) {
      if (step instanceof Error) throw step
      yield step
    }
    ended = true
  } finally {
    if (!ended) leave()
  }
}

const failure = (kind: FailureKind, details: FailureDetails = {}): GatewayError => new GatewayError(kind, kind, details)

const NOW = Date.UTC(2026, 0, 2, 3, 4, 5)

const call = (signal?: AbortSignal, scope = 'key', startedAt = NOW): UpstreamCall => ({
  ...failoverRequest({ signal, scope, startedAt }),
  headers: { 'anthropic-beta': 'b' },
  promptFor: ({ provider }) => tinyPrompt(provider.name),
})

interface TestFailover {
  readonly runtime: ManualRuntime
  readonly failover: ReturnType<typeof createFailover>
  /** Waits for a promise, advances the clock when only timers are pending, and records the delays. */
  readonly run: <value>(promise: Promise<value>) => Promise<value>
  readonly waits: number[]
}

function createTestFailover(options: Partial<FailoverOptions> = {}, random = (): number => 0.5): TestFailover {
  const runtime = manualRuntime(noNetwork, { random })
  const waits: number[] = []
  const run = async <value>(promise: Promise<value>): Promise<value> => {
    const state = { settled: false }
    const settle = (): void => {
      state.settled = true
    }
    promise.then(settle, settle)
    while (!state.settled) {
      await new Promise((resolve) => {
        setImmediate(resolve)
      })
      const [delay] = runtime.delays()
      if (state.settled || delay === undefined) continue
      waits.push(delay)
      runtime.advance(delay)
    }
    return await promise
  }
  return { runtime, failover: createFailover({ runtime, timeouts, ...options }), run, waits }
}

describe('calling candidates', () => {
  it('calls the first candidate with its prompt and the timeouts, and returns the route', async () => {
    const { failover, run, runtime } = createTestFailover()
    const [one, two] = [createScriptedProvider('one', whole), createScriptedProvider('two', whole)]
    const { response, ignored, route } = await run(failover.complete([one, two], call()))
    expect([response, ignored, route.provider.name]).toEqual([whole, ['one'], 'one'])
    expect(one.calls).toHaveLength(1)
    expect(one.calls[0]).toMatchObject({ prompt: tinyPrompt('one'), timeouts, headers: { 'anthropic-beta': 'b' } })
    expect(two.calls).toHaveLength(0)
    expect(runtime.pending()).toBe(0)
  })

  it('calls the next candidate after a custom provider that resolves with nothing', async () => {
    const { failover, run } = createTestFailover()
    const [one, two] = [createScriptedProvider('one', whole), createScriptedProvider('two', whole)]
    const broken = { ...one, provider: { ...one.provider, complete: async () => JSON.parse('null') } }
    const { route } = await run(failover.complete([broken, two], call()))
    expect([route.provider.name, two.calls.length]).toEqual(['two', 1])
  })

  it('calls the next candidate after a custom provider that throws instead of rejecting', async () => {
    const { failover, run } = createTestFailover()
    const [one, two] = [createScriptedProvider('one', whole), createScriptedProvider('two', whole)]
    const throwSynchronously = (): never => {
      throw failure('upstream-timeout')
    }
    const broken = { ...one, provider: { ...one.provider, complete: throwSynchronously } }
    const { route } = await run(failover.complete([broken, two], call()))
    expect([route.provider.name, two.calls.length]).toEqual(['two', 1])
  })

  it.each(['complete', 'stream'] as const)('calls no candidate again after a final failure (%s)', async (method) => {
    const { failover, run, waits } = createTestFailover()
    const final = failure('upstream', { advice: { shouldRetry: 'false' }, isFinal: true })
    const [one, two] = [createScriptedProvider('one', final), createScriptedProvider('two', whole)]
    const noStream = (): never => {
      throw new Error('no stream is expected')
    }
    const pending =
      method === 'complete'
        ? run(failover.complete([one, two], call()))
        : run(failover.stream([one, two], call(), noStream))
    await expect(pending).rejects.toBe(final)
    expect([one.calls.length, two.calls.length]).toEqual([1, 0])
    expect(waits).toEqual([])
  })

  it.each(['upstream', 'overloaded', 'upstream-rate-limited'] as const)(
    'calls a candidate three times for %s, with random delays whose maximum doubles, then calls the next',
    async (kind) => {
      const { failover, run, waits } = createTestFailover()
      const [one, two] = [createScriptedProvider('one', failure(kind)), createScriptedProvider('two', whole)]
      const { route } = await run(failover.complete([one, two], call()))
      expect([route.provider.name, one.calls.length, two.calls.length]).toEqual(['two', 3, 1])
      expect(waits).toEqual([250, 500])
    },
  )

  it('chooses a random delay between 0 and the maximum', async () => {
    for (const [random, expected] of [
      [0, [0, 0]],
      [0.999, [499.5, 999]],
    ] as const) {
      const { failover, run, waits } = createTestFailover({}, () => random)
      await failureOf(run(failover.complete([createScriptedProvider('one', failure('upstream'))], call())))
      expect(waits).toEqual(expected)
    }
  })

  it('stops retrying when a candidate answers', async () => {
    const { failover, run } = createTestFailover()
    const one = createScriptedProvider('one', failure('upstream'), whole)
    expect((await run(failover.complete([one], call()))).response).toBe(whole)
    expect(one.calls).toHaveLength(2)
  })

  it('throws the first failure when all candidates fail', async () => {
    const { failover, run } = createTestFailover()
    const candidates = [
      createScriptedProvider('one', failure('overloaded')),
      createScriptedProvider('two', failure('upstream')),
    ]
    expect((await failureOf(run(failover.complete(candidates, call())))).kind).toBe('overloaded')
  })

  it('does not call other candidates when the request is rejected', async () => {
    const { failover, run, waits } = createTestFailover()
    const [one, two] = [
      createScriptedProvider('one', failure('upstream-rejected', { upstream: { status: 400 } })),
      createScriptedProvider('two', whole),
    ]
    expect((await failureOf(run(failover.complete([one, two], call())))).kind).toBe('upstream-rejected')
    expect([one.calls.length, two.calls.length, waits]).toEqual([1, 0, []])
  })

  it('calls the next candidate immediately after a timeout, a rejected key, and an unsupported prompt', async () => {
    const refusals = [
      failure('upstream-timeout'),
      failure('upstream', { advice: { shouldRetry: 'false' } }),
      failure('invalid-request'),
    ]
    for (const refusal of refusals) {
      const { failover, run, waits } = createTestFailover()
      const [one, two] = [createScriptedProvider('one', refusal), createScriptedProvider('two', whole)]
      expect((await run(failover.complete([one, two], call()))).route.provider.name).toBe('two')
      expect([one.calls.length, waits]).toEqual([1, []])
    }
  })

  it('waits for Retry-After only if no other candidate exists', async () => {
    const busy = failure('upstream-rate-limited', { retryAfterSeconds: 7 })
    const alone = createTestFailover()
    const one = createScriptedProvider('one', busy, whole)
    expect((await alone.run(alone.failover.complete([one], call()))).response).toBe(whole)
    expect(alone.waits).toEqual([7000])
    const both = createTestFailover()
    const { route } = await both.run(
      both.failover.complete([createScriptedProvider('one', busy), createScriptedProvider('two', whole)], call()),
    )
    expect([route.provider.name, both.waits]).toEqual(['two', []])
  })

  it('reports a long Retry-After to the caller', async () => {
    const { failover, run, waits } = createTestFailover()
    const busy = failure('upstream-rate-limited', { retryAfterSeconds: 21 })
    expect(await failureOf(run(failover.complete([createScriptedProvider('one', busy)], call())))).toBe(busy)
    expect(waits).toEqual([])
  })

  it('does not wait beyond the deadline of a call', async () => {
    const { failover, run, waits } = createTestFailover({ timeouts: { ...timeouts, totalMs: 600 } })
    const one = createScriptedProvider('one', failure('upstream'))
    await failureOf(run(failover.complete([one], call())))
    expect([one.calls.length, waits]).toEqual([2, [250]])
  })

  it('rejects immediately when the caller disconnects during a delay', async () => {
    const { failover, runtime } = createTestFailover()
    const controller = new AbortController()
    const [one, two] = [createScriptedProvider('one', failure('upstream')), createScriptedProvider('two', whole)]
    const asked = failureOf(failover.complete([one, two], call(controller.signal)))
    await new Promise((resolve) => {
      setImmediate(resolve)
    })
    controller.abort(new Error('gone'))
    expect((await asked).message).toBe('gone')
    expect([one.calls.length, two.calls.length, runtime.pending()]).toEqual([1, 0, 0])
  })

  it('rejects with internal for an empty list of candidates', async () => {
    const { failover } = createTestFailover()
    expect((await failureOf(failover.complete([], call()))).kind).toBe('internal')
  })
})

describe('streams', () => {
  it('forwards every step after the first content', async () => {
    const { failover, run, runtime } = createTestFailover()
    const chunks = [greet, say('a'), say('b'), done]
    const { response, route } = await run(
      failover.stream([createScriptedProvider('one', chunks)], call(), createChunkStream),
    )
    expect(route.provider.name).toBe('one')
    expect(await collectChunks(response)).toEqual(chunks)
    expect(runtime.pending()).toBe(0)
  })

  it.each([
    ['refuses', failure('overloaded')],
    ['breaks before the first step', [failure('upstream')]],
    ['breaks after its greeting', [greet, { parts: [{ type: 'text-start' }] }, failure('upstream')]],
  ] satisfies readonly (readonly [string, Turn])[])(
    'calls the next candidate when the first %s',
    async (_name, turn) => {
      const { failover, run } = createTestFailover()
      const { response, route } = await run(
        failover.stream(
          [createScriptedProvider('one', turn), createScriptedProvider('two', [say('fine'), done])],
          call(),
          createChunkStream,
        ),
      )
      expect(route.provider.name).toBe('two')
      expect(textOf(await collectChunks(response))).toBe('fine')
    },
  )

  it('does not call other candidates after the first content', async () => {
    const { failover, run } = createTestFailover()
    const two = createScriptedProvider('two', [say('fine'), done])
    const { response } = await run(
      failover.stream(
        [createScriptedProvider('one', [greet, say('a'), failure('upstream')]), two],
        call(),
        createChunkStream,
      ),
    )
    expect((await failureOf(collectChunks(response))).kind).toBe('upstream')
    expect(two.calls).toHaveLength(0)
  })

  it("aborts the provider's stream when the caller disconnects", async () => {
    const { failover, run } = createTestFailover()
    const one = createScriptedProvider('one', [greet, say('a'), say('b'), done])
    const { response } = await run(failover.stream([one], call(), createChunkStream))
    response.abort()
    expect(one.left()).toBe(1)
  })

  it('forwards a stream without content five seconds after the call', async () => {
    const { failover, run, waits } = createTestFailover()
    let speak = (): void => {}
    const silence = new Promise<void>((resolve) => {
      speak = resolve
    })
    const response = async function* (): AsyncGenerator<StreamChunk> {
      await silence
      yield* [greet, say('at last'), done]
    }
    const silent: Provider = {
      ...createScriptedProvider('one').provider,
      stream: async () => ({ ignored: [], response: response() }),
    }
    const failing = createScriptedProvider('bad', failure('overloaded'))
    const candidates = [failing, { provider: silent, model: testModel }]
    const { response: steps, route } = await run(failover.stream(candidates, call(), createChunkStream))

    expect(route.provider.name).toBe('one')
    // The five seconds include the delays between the calls to the first candidate.
    expect(waits).toEqual([250, 500, 4250])
    const all = collectChunks(steps)
    speak()
    expect(textOf(await all)).toBe('at last')
  })

  it.each(['before', 'while'])(
    'ends the request of a caller who disconnects %s the gateway waits for a provider that ignores the signal',
    async (moment) => {
      const { failover, runtime } = createTestFailover()
      const controller = new AbortController()
      const deaf: Provider = {
        ...createScriptedProvider('one').provider,
        stream: async () => {
          if (moment === 'before') controller.abort(new Error('gone'))
          else setImmediate(() => controller.abort(new Error('gone')))
          return { ignored: [], response: { [Symbol.asyncIterator]: () => ({ next: () => new Promise(() => {}) }) } }
        },
      }
      const asked = failover.stream([{ provider: deaf, model: testModel }], call(controller.signal), createChunkStream)
      expect((await failureOf(asked)).message).toBe('gone')
      expect(runtime.pending()).toBe(0)
    },
  )

  it('forwards a stream without text five seconds after the call', async () => {
    const { failover, run, waits } = createTestFailover()
    let speak = (): void => {}
    const silence = new Promise<void>((resolve) => {
      speak = resolve
    })
    const thinking: Provider = {
      ...createScriptedProvider('one').provider,
      stream: async () => ({
        ignored: [],
        response: (async function* () {
          yield greet
          await silence
          yield say('at last')
          yield done
        })(),
      }),
    }
    const { response } = await run(
      failover.stream([{ provider: thinking, model: testModel }], call(), createChunkStream),
    )
    expect(waits).toEqual([5000])
    const all = collectChunks(response)
    speak()
    expect(await all).toEqual([greet, say('at last'), done])
  })
})

describe('the deadline', () => {
  const late = (): GatewayError => failure('upstream-timeout')

  /** Creates a provider that advances the clock by `ms` in each call before its turn. */
  function slow(name: string, ms: number, runtime: ManualRuntime, ...turns: readonly Turn[]): Played {
    const one = createScriptedProvider(name, ...turns)
    const complete: Provider['complete'] = (given) => {
      runtime.advance(ms)
      return one.provider.complete(given)
    }
    return { ...one, provider: { ...one.provider, complete } }
  }

  it('limits the time of a request over all calls and candidates', async () => {
    const { failover, run, runtime } = createTestFailover({ timeouts: { ...timeouts, totalMs: 10_000 } })
    const one = slow('one', 4000, runtime, failure('upstream'), late())
    const two = slow('two', 0, runtime, whole)
    expect((await run(failover.complete([one, two], call()))).route.provider.name).toBe('two')
    const given = [...one.calls, ...two.calls].map(({ timeouts: { totalMs: total } }) => total)
    expect(given).toEqual([10_000, 10_000 - 4250, 10_000 - 8250])
  })

  it('starts with the request', async () => {
    const { failover, run } = createTestFailover()
    const one = createScriptedProvider('one', whole)
    await run(failover.complete([one], call(undefined, 'key', NOW - 60_000)))
    expect(one.calls[0]?.timeouts.totalMs).toBe(timeouts.totalMs - 60_000)
  })

  it('prevents calls to other candidates once it has passed', async () => {
    const { failover, run, runtime } = createTestFailover({ timeouts: { ...timeouts, totalMs: 10_000 } })
    const one = slow('one', 10_000, runtime, late())
    const two = createScriptedProvider('two', whole)
    expect((await failureOf(run(failover.complete([one, two], call())))).kind).toBe('upstream-timeout')
    expect(two.calls).toHaveLength(0)
  })

  it('ends a stream that is not read, but not one that has ended', async () => {
    const { failover, run, runtime } = createTestFailover()
    const { response } = await run(
      failover.stream([createScriptedProvider('one', [say('a'), done])], call(), createChunkStream),
    )
    await collectChunks(response)
    expect(runtime.pending()).toBe(0)
    let left = 0
    const chunks = [say('a')]
    const stuck: AsyncIterator<StreamChunk> = {
      next: () => {
        const value = chunks.shift()
        return value === undefined ? new Promise(() => {}) : Promise.resolve({ done: false, value })
      },
      return: () => {
        left += 1
        return Promise.resolve({ done: true, value: undefined })
      },
    }
    const provider: Provider = {
      ...createScriptedProvider('one').provider,
      stream: async () => ({ ignored: [], response: { [Symbol.asyncIterator]: () => stuck } }),
    }
    const { response: unread } = await run(failover.stream([{ provider, model: testModel }], call(), createChunkStream))
    runtime.advance(timeouts.totalMs - 1)
    expect(left).toBe(0)
    runtime.advance(1)
    expect(left).toBe(1)
    expect(await failureOf(collectChunks(unread))).toMatchObject({ kind: 'upstream-timeout' })
    expect(runtime.pending()).toBe(0)
  })
})

describe('circuits', () => {
  const OPEN = { state: 'open', isForAllKeys: true }
  const CLOSED = { state: 'closed', isForAllKeys: true }

  /** Sends requests of two keys alternately. */
  async function sendAlternately(fixture: TestFailover, candidates: readonly Route[], times: number): Promise<void> {
    for (let count = 0; count < times; count += 1) {
      const asked = fixture.failover.complete(candidates, call(undefined, `key-${count % 2}`, fixture.runtime.now()))
      await fixture.run(asked).catch(() => {})
    }
  }

  it('skip a failing provider, probe it once, and use it again', async () => {
    const fixture = createTestFailover({ tries: 1 })
    const bad = createScriptedProvider('bad', ...Array.from({ length: 20 }, () => failure('upstream')), whole)
    const good = createScriptedProvider('good', whole)
    await sendAlternately(fixture, [bad, good], 19)
    expect(fixture.failover.circuits()['bad/model']).toEqual(CLOSED)
    await sendAlternately(fixture, [bad, good], 11)
    expect([bad.calls.length, good.calls.length]).toEqual([20, 30])
    expect(fixture.failover.circuits()).toEqual({ 'bad/model': OPEN, 'good/model': CLOSED })
    fixture.runtime.advance(30_000)
    await sendAlternately(fixture, [bad, good], 1)
    expect([bad.calls.length, good.calls.length]).toEqual([21, 30])
    expect(fixture.failover.circuits()['bad/model']).toEqual(CLOSED)
  })

  it('count a request once for all its calls', async () => {
    const fixture = createTestFailover()
    const bad = createScriptedProvider('bad', failure('upstream'))
    await sendAlternately(fixture, [bad], 19)
    expect(bad.calls).toHaveLength(57)
    expect(fixture.failover.circuits()).toEqual({ 'bad/model': CLOSED })
  })

  it('do not count a request that succeeds in its last call as a failure', async () => {
    const fixture = createTestFailover()
    const [bad, fine] = [failure('upstream'), whole]
    const flaky = createScriptedProvider('flaky', ...Array.from({ length: 100 }, () => [bad, bad, fine]).flat())
    await sendAlternately(fixture, [flaky], 40)
    expect(fixture.failover.circuits()).toEqual({ 'flaky/model': CLOSED })
  })

  it('call a provider without alternative once per second and key, without retries, and report when', async () => {
    const fixture = createTestFailover({ tries: 1 })
    const { failover, run, runtime } = fixture
    const bad = createScriptedProvider('bad', failure('upstream'))
    await sendAlternately(fixture, [bad], 20)
    expect((await failureOf(run(failover.complete([bad], call(undefined, 'key-0', runtime.now()))))).kind).toBe(
      'upstream',
    )
    const rejection = await failureOf(run(failover.complete([bad], call(undefined, 'key-0', runtime.now()))))
    expect(rejection).toMatchObject({ kind: 'overloaded', details: { retryAfterSeconds: 1 } })
    expect(bad.calls).toHaveLength(21)
    runtime.advance(1000)
    expect((await failureOf(run(failover.complete([bad], call(undefined, 'key-0', runtime.now()))))).kind).toBe(
      'upstream',
    )
    expect(bad.calls).toHaveLength(22)
  })

  it('send one call per probe', async () => {
    const fixture = createTestFailover()
    const bad = createScriptedProvider('bad', failure('upstream'))
    await sendAlternately(fixture, [bad], 20)
    const before = bad.calls.length
    await sendAlternately(fixture, [bad], 1)
    expect(bad.calls.length - before).toBe(1)
  })

  it('probe the first of two open circuits', async () => {
    const fixture = createTestFailover({ tries: 1 })
    const [one, two] = [
      createScriptedProvider('one', failure('upstream')),
      createScriptedProvider('two', failure('upstream')),
    ]
    await sendAlternately(fixture, [one, two], 20)
    fixture.runtime.advance(1000)
    const before = one.calls.length
    await sendAlternately(fixture, [one, two], 1)
    expect(one.calls.length - before).toBe(1)
  })

  it('do not open for failures that the provider did not cause', async () => {
    const harmless = [
      failure('upstream-rejected', { upstream: { status: 400 } }),
      failure('upstream', { advice: { shouldRetry: 'false' }, isLocalFault: true }),
      failure('upstream-timeout', { isLocalFault: true }),
      failure('upstream-rate-limited'),
      failure('invalid-request'),
    ]
    for (const error of harmless) {
      const fixture = createTestFailover()
      await sendAlternately(fixture, [createScriptedProvider('one', error)], 40)
      expect(fixture.failover.circuits()).toEqual({ 'one/model': CLOSED })
    }
  })

  it('count a 5xx that the upstream marks as not retryable', async () => {
    const fixture = createTestFailover()
    await sendAlternately(
      fixture,
      [createScriptedProvider('one', failure('upstream', { advice: { shouldRetry: 'false' } }))],
      20,
    )
    expect(fixture.failover.circuits()).toEqual({ 'one/model': OPEN })
  })

  it('do not open when callers disconnect', async () => {
    const { failover, run } = createTestFailover()
    for (let round = 0; round < 40; round += 1) {
      const gone = AbortSignal.abort(new Error('gone'))
      await failureOf(
        run(failover.complete([createScriptedProvider('one', failure('upstream'))], call(gone, `key-${round % 2}`))),
      )
    }
    expect(failover.circuits()).toEqual({ 'one/model': CLOSED })
  })

  it('count a timeout only if the provider had the full time', async () => {
    const outcomes = []
    for (const spent of [0, 6000]) {
      const breaker = createCircuitBreaker({ minRequests: 1 })
      const fixture = createTestFailover({ tries: 1, breaker, timeouts: { ...timeouts, totalMs: 10_000 } })
      const slow = (name: string, ms: number): Route => {
        const complete: Provider['complete'] = () => {
          fixture.runtime.advance(ms)
          return Promise.reject(failure(ms === spent ? 'upstream-rate-limited' : 'upstream-timeout'))
        }
        return { provider: { ...createScriptedProvider(name).provider, complete }, model: testModel }
      }
      await sendAlternately(
        fixture,
        spent === 0 ? [slow('late', 10_000)] : [slow('first', spent), slow('late', 4000)],
        1,
      )
      outcomes.push(fixture.failover.circuits()['late/model']?.state)
    }
    expect(outcomes).toEqual(['open', 'closed'])
  })

  it('open for broken streams, and close for a complete stream', async () => {
    const { failover, run, runtime } = createTestFailover({ tries: 1 })
    const one = createScriptedProvider('one', ...Array.from({ length: 20 }, () => [say('a'), failure('upstream')]), [
      say('a'),
      done,
    ])
    const read = async (round: number): Promise<unknown> => {
      const asked = call(undefined, `key-${round % 2}`, runtime.now())
      return await collectChunks((await run(failover.stream([one], asked, createChunkStream))).response)
    }
    for (let round = 0; round < 20; round += 1) await failureOf(read(round))
    expect(failover.circuits()).toEqual({ 'one/model': OPEN })
    runtime.advance(1000)
    await read(0)
    expect(failover.circuits()).toEqual({ 'one/model': CLOSED })
  })
})
