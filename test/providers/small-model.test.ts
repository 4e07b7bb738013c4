import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { costOf, NO_USAGE } from '../../src/core/money.ts'
import type { ClosableTransport, Route } from '../../src/core/ports.ts'
import { undiciTransport } from '../../src/http/transport-undici.ts'
import { anthropic, openai } from '../../src/providers/main-providers.ts'
import type { SmallModel } from '../../src/core/ports.ts'
import { smallModelFor } from '../../src/providers/small-model.ts'
import { manualRuntime, type ManualRuntime } from '../support/manual-runtime.ts'
import { failureOf, timeouts } from '../support/provider-call.ts'
import { startUpstream, type Upstream } from '../support/upstream.ts'

let upstream: Upstream
let transport: ClosableTransport
let runtime: ManualRuntime

beforeEach(async () => {
  upstream = await startUpstream()
  transport = undiciTransport()
  runtime = manualRuntime(transport)
})

afterEach(async () => {
  await transport.close()
  await upstream.close()
})

function routeTo(id: string): Route {
  const provider = id.startsWith('claude')
    ? anthropic({ apiKey: 'sk-test-key', baseUrl: upstream.url })
    : openai({ apiKey: 'sk-test-key', baseUrl: upstream.baseUrl })
  const model = provider.model(id)
  if (model === undefined) throw new Error(`no model ${id}`)
  return { provider, model }
}

/** Returns the model itself as a small model. */
function smallModelOf({ provider, model }: Route): SmallModel {
  const small = smallModelFor({ provider, model: { ...model, small: model.id } }, { runtime, timeouts })
  if (small === undefined) throw new Error(`no small model ${model.id}`)
  return small
}

const question = {
  instruction: 'Summarize.',
  text: 'A long story.',
  maxTokens: 100,
  signal: new AbortController().signal,
}

describe('a small model', () => {
  it.each([
    [
      'gpt-4o-mini',
      {
        model: 'gpt-4o-mini',
        messages: [
          { role: 'system', content: 'Summarize.' },
          { role: 'user', content: 'A long story.' },
        ],
        max_completion_tokens: 100,
        temperature: 0,
      },
    ],
    [
      'gpt-6-luna',
      {
        model: 'gpt-6-luna',
        reasoning_effort: 'none',
        messages: [
          { role: 'system', content: 'Summarize.' },
          { role: 'user', content: 'A long story.' },
        ],
        max_completion_tokens: 100,
      },
    ],
    [
      'claude-haiku-5-5',
      {
        model: 'claude-haiku-5-5',
        thinking: { type: 'disabled' },
        system: [{ type: 'text', text: 'Summarize.' }],
        messages: [{ role: 'user', content: [{ type: 'text', text: 'A long story.' }] }],
        max_tokens: 100,
      },
    ],
  ])('calls %s with temperature 0 and without reasoning if the model supports both', async (id, body) => {
    upstream.reply = () => 'Short.'
    const small = smallModelOf(routeTo(id))
    const { text } = await small.ask(question)
    expect(text).toBe('Short.')
    expect(upstream.last.body).toEqual(body)
  })

  it("costs what the upstream reports, at the small model's price", async () => {
    upstream.reply = () => ({
      text: 'Short.',
      usage: { prompt_tokens: 1000, completion_tokens: 10, total_tokens: 1010 },
    })
    const route = routeTo('gpt-4o-mini')
    const small = smallModelOf(route)
    const { spent } = await small.ask(question)
    expect(spent).toBe(costOf({ ...NO_USAGE, inputTokens: 1000, outputTokens: 10 }, route.model.price))
    expect(small.price(1000, 10)).toBe(spent)
    expect(small.name).toBe('openai/gpt-4o-mini')
  })

  it('has an estimated cost if the upstream reports no usage', async () => {
    upstream.reply = () => ({ text: 'Short.', usage: null })
    const { spent } = await smallModelOf(routeTo('gpt-4o-mini')).ask(question)
    expect(spent).toBeGreaterThan(0)
  })

  it('rejects when the upstream fails, when the tier cancels, and after its deadline', async () => {
    const small = smallModelOf(routeTo('gpt-4o-mini'))
    upstream.reply = () => ({ kind: 'failure', status: 500 })
    expect((await failureOf(small.ask(question))).kind).toBe('upstream')
    upstream.reply = () => ({ kind: 'hang' })
    const controller = new AbortController()
    const left = failureOf(small.ask({ ...question, signal: controller.signal }))
    await upstream.waitForRequest(2)
    controller.abort(new Error('gone'))
    expect((await left).message).toBe('gone')
    const late = failureOf(small.ask(question))
    await upstream.waitForRequest(3)
    runtime.advance(30_000)
    expect((await late).kind).toBe('upstream-timeout')
    expect(runtime.pending()).toBe(0)
  })

  it('has the same family and provider as the model', () => {
    const options = { runtime, timeouts }
    expect(smallModelFor(routeTo('gpt-4o'), options)?.name).toBe('openai/gpt-6-luna')
    expect(smallModelFor(routeTo('claude-sonnet-5-5'), options)?.name).toBe('anthropic/claude-haiku-5-5')
    expect(smallModelFor(routeTo('gpt-6-luna'), options)).toBeUndefined()
    const { provider, model } = routeTo('gpt-4o')
    expect(smallModelFor({ provider, model: { ...model, family: 'llama' } }, options)).toBeUndefined()
    expect(smallModelFor({ provider, model: { ...model, small: 'no-such-model' } }, options)).toBeUndefined()
  })
})
