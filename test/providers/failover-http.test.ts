import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { StreamChunk } from '../../src/core/completion.ts'
import type { ClosableTransport, Route } from '../../src/core/ports.ts'
import { chatClient } from '../../src/formats/chat/client.ts'
import { undiciTransport } from '../../src/http/transport-undici.ts'
import { createCircuitBreaker } from '../../src/providers/circuit-breaker.ts'
import { anthropic, openai } from '../../src/providers/main-providers.ts'
import { createFailover, type Failover } from '../../src/providers/failover.ts'
import type { UpstreamCall } from '../../src/upstream/attempts.ts'
import { failoverRequest } from '../support/failover-request.ts'
import { manualRuntime, type ManualRuntime } from '../support/manual-runtime.ts'
import { collectChunks, failureOf, textOf, textOfCompletion, timeouts } from '../support/provider-call.ts'
import { readChunks, createChunkStream } from '../support/chunk-reader.ts'
import { CUT, buildEvents, gate, HANG, startUpstream, type Upstream } from '../support/upstream.ts'

let first: Upstream
let second: Upstream
let transport: ClosableTransport
let runtime: ManualRuntime
let failover: Failover
let candidates: readonly Route[]

beforeEach(async () => {
  first = await startUpstream()
  second = await startUpstream({ reply: () => 'The second one answers.' })
  transport = undiciTransport()
  // A random number of 0 makes every retry delay 0, so the tests do not advance a clock.
  runtime = manualRuntime(transport, { random: () => 0 })
  failover = createFailover({ runtime, timeouts })
  candidates = [
    candidate(openai({ apiKey: 'sk-test-key', baseUrl: first.baseUrl }), 'gpt-4o'),
    candidate(anthropic({ apiKey: 'sk-test-key', baseUrl: second.url }), 'claude-haiku-4-5'),
  ]
})

afterEach(async () => {
  await transport.close()
  await first.close()
  await second.close()
})

function candidate(provider: Route['provider'], id: string): Route {
  const model = provider.model(id)
  if (model === undefined) throw new Error(`no model ${id}`)
  return { provider, model }
}

function call(stream: boolean, signal?: AbortSignal, scope?: string): UpstreamCall {
  const prompt = chatClient.readPrompt({
    model: 'x/y',
    stream,
    max_tokens: 50,
    messages: [{ role: 'user', content: 'Hello?' }],
  })
  return {
    ...failoverRequest({ signal, scope, startedAt: runtime.now() }),
    promptFor: () => prompt,
  }
}

/** Fires pending timers with a delay of 0 until the promise settles. */
async function skipDelays<value>(promise: Promise<value>): Promise<value> {
  const state = { settled: false }
  const settle = (): void => {
    state.settled = true
  }
  promise.then(settle, settle)
  while (!state.settled) {
    await new Promise((resolve) => {
      setImmediate(resolve)
    })
    if (runtime.delays()[0] === 0) runtime.advance(0)
  }
  return await promise
}

describe('over real connections', () => {
  it.each([500, 502, 503, 529, 429])('calls the other provider after status %i in three calls', async (status) => {
    first.reply = () => ({ kind: 'failure', status })
    const { response, route } = await skipDelays(failover.complete(candidates, call(false)))
    expect([textOfCompletion(response), route.provider.name]).toEqual(['The second one answers.', 'anthropic'])
    expect([first.requests.length, second.requests.length]).toEqual([3, 1])
  })

  it.each([400, 404, 422])('does not retry status %i', async (status) => {
    first.reply = () => ({ kind: 'failure', status })
    expect((await failureOf(skipDelays(failover.complete(candidates, call(false))))).kind).toBe('upstream-rejected')
    expect([first.requests.length, second.requests.length]).toEqual([1, 0])
  })

  it.each([401, 403])('calls the other provider immediately after status %i', async (status) => {
    first.reply = () => ({ kind: 'failure', status })
    expect((await skipDelays(failover.complete(candidates, call(false)))).route.provider.name).toBe('anthropic')
    expect(first.requests).toHaveLength(1)
  })

  it('treats a rejected key in an answer of status 200 like status 401', async () => {
    failover = createFailover({ runtime, timeouts, breaker: createCircuitBreaker({ minRequests: 1 }) })
    const value = { error: { message: 'Incorrect API key provided.', code: 'invalid_api_key' } }
    first.reply = () => ({ kind: 'json', value })
    expect((await skipDelays(failover.complete(candidates, call(false)))).route.provider.name).toBe('anthropic')
    first.reply = () => ({ kind: 'events', items: [{ data: JSON.stringify(value) }] })
    const { route } = await skipDelays(failover.stream(candidates, call(true), createChunkStream))
    expect(route.provider.name).toBe('anthropic')
    expect(first.requests).toHaveLength(2)
    expect(failover.circuits()['openai/gpt-4o']?.state).toBe('closed')
  })

  it('replaces a stream that breaks before its first content with the stream of the other provider', async () => {
    first.reply = (request) => ({
      kind: 'events',
      items: [...buildEvents(request, { text: 'never seen' }).slice(0, 1), CUT],
    })
    const { response, route } = await skipDelays(failover.stream(candidates, call(true), createChunkStream))
    expect([textOf(await collectChunks(response)), route.provider.name]).toEqual([
      'The second one answers.',
      'anthropic',
    ])
    expect(first.requests).toHaveLength(3)
  })

  it('does not retry a stream that breaks after its first content', async () => {
    first.reply = (request) => ({
      kind: 'events',
      items: [...buildEvents(request, { text: 'one two three' }).slice(0, 3), CUT],
    })
    const { response } = await skipDelays(failover.stream(candidates, call(true), createChunkStream))
    const seen: StreamChunk[] = []
    const reading = (async (): Promise<void> => {
      for await (const chunk of readChunks(response)) seen.push(chunk)
    })()
    expect((await failureOf(reading)).kind).toBe('upstream')
    expect(textOf(seen)).toBe('one two')
    expect([first.requests.length, second.requests.length]).toEqual([1, 0])
  })

  it('forwards text that resembles events as text in both formats', async () => {
    const text = 'a\n\ndata: [DONE]\n\nevent: message_stop\r\ndata: {}\r\u2028\u2029: b'
    for (const upstream of [first, second]) upstream.reply = () => ({ text: [text, text] })
    for (const one of candidates) {
      const { response } = await skipDelays(failover.stream([one], call(true), createChunkStream))
      expect(textOf(await collectChunks(response))).toBe(text + text)
    }
  })

  it('answers 500 concurrent failing calls, and sends none of them more than three times', async () => {
    first.reply = () => ({ kind: 'failure', status: 500 })
    const all = Array.from({ length: 500 }, (_, index) =>
      failureOf(failover.complete(candidates.slice(0, 1), call(false, undefined, `key-${index % 5}`))),
    )
    const failures = await skipDelays(Promise.all(all))
    expect(failures.every((failure) => failure.kind === 'upstream' || failure.kind === 'overloaded')).toBe(true)
    expect(first.requests.length).toBeLessThanOrEqual(1500)
    expect(failover.circuits()).toEqual({ 'openai/gpt-4o': { state: 'open', isForAllKeys: true } })
    expect(runtime.pending()).toBe(0)
  })

  it('does not delay other calls during 200 calls that hang', async () => {
    first.reply = () => ({ kind: 'hang' })
    const controllers = Array.from({ length: 200 }, () => new AbortController())
    const hanging = controllers.map(({ signal }) =>
      failureOf(failover.complete(candidates.slice(0, 1), call(false, signal))),
    )
    await first.waitForRequest(200)
    expect((await failover.complete(candidates.slice(1), call(false))).route.provider.name).toBe('anthropic')
    for (const controller of controllers) controller.abort(new Error('gone'))
    await Promise.all(hanging)
    await Promise.all(first.requests.map((request) => request.aborted))
    expect(Object.values(failover.circuits()).map(({ state }) => state)).toEqual(['closed', 'closed'])
  })

  it('closes the upstream and calls no other provider when the caller disconnects before the first content', async () => {
    const { opened, open } = gate()
    first.reply = () => {
      open()
      return { kind: 'events', items: [HANG] }
    }
    const controller = new AbortController()
    const asked = failureOf(failover.stream(candidates, call(true, controller.signal), createChunkStream))
    await opened
    controller.abort(new Error('gone'))
    expect((await asked).message).toBe('gone')
    await first.last.aborted
    expect(second.requests).toHaveLength(0)
    expect(runtime.pending()).toBe(0)
  })
})
