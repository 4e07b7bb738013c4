import { describe, expect, it } from 'vitest'
import { createGateway, openaiCompatible, type GatewayOptions } from '../../src/index.ts'
import { extractive } from '../../src/testing.ts'

const LINE = 'The valve of unit seven opens at noon, and the pump of unit nine starts an hour later. '

/** A conversation of about 25,000 tokens. */
const messages = Array.from({ length: 25 }, (_, index) => ({
  role: index % 2 === 0 ? 'user' : 'assistant',
  content: index === 24 ? 'When does the valve open?' : `Part ${index}. ${LINE.repeat(50)}`,
}))

async function startGateway(options: Partial<GatewayOptions>) {
  const gateway = createGateway({ providers: [extractive()], ...options })
  const { value } = await gateway.keys.create({ name: 'app' })
  const send = (path: string, body: object | undefined, headers: Readonly<Record<string, string>> = {}) =>
    gateway.fetch(`http://gateway${path}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: { authorization: `Bearer ${value}`, 'content-type': 'application/json', ...headers },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    })
  const strategyWith = async (headers: Readonly<Record<string, string>>): Promise<string | null> => {
    const response = await send('/v1/chat/completions', { model: 'extractive/extractive', messages }, headers)
    return response.headers.get('x-svc-strategy')
  }
  return { gateway, send, strategyWith }
}

const PASSTHROUGH = /^Passthrough/
const SLIDER = { 'x-savings-level': 'extreme', 'x-svc-force': 'true' }
const VANISHING = { 'x-vanishing-context': 'true', 'x-svc-force': 'true' }
const RECURSIVE = { 'x-svc-rlm': 'true', 'x-svc-force': 'true' }
/** Without a header, so that tier 4 runs. */
const UNSTEERED = {}
const EAGER = { summarizer: 'extractive', keep: 0, thresholdTokens: { family: 3000 } } as const

describe('false switches off', () => {
  it('the cache', async () => {
    const question = { model: 'extractive/extractive', messages: [{ role: 'user', content: 'Hello there.' }] }
    const hits = async (options: Partial<GatewayOptions>): Promise<(string | null)[]> => {
      const { gateway, send } = await startGateway(options)
      const first = await send('/v1/chat/completions', question)
      await first.text()
      const second = await send('/v1/chat/completions', question)
      await gateway.close()
      return [first, second].map(({ headers }) => headers.get('x-svc-strategy'))
    }

    expect(await hits({})).toEqual([expect.stringMatching(PASSTHROUGH), 'Semantic-Cache'])
    expect(await hits({ cache: false })).toEqual([
      expect.stringMatching(PASSTHROUGH),
      expect.stringMatching(PASSTHROUGH),
    ])
  })

  it.each([
    ['tier 5', { slider: false }, SLIDER, /^Savings-Slider/],
    ['tier 2', { vanishing: false }, VANISHING, /^Vanishing-Context/],
    ['tier 3', { recursive: false }, RECURSIVE, /^Recursive-RLM/],
    ['tier 4', { family: false }, UNSTEERED, /^Family-Lock/],
  ] as const)('%s', async (_, off, headers, strategy) => {
    const on = await startGateway({ cache: false, savings: EAGER })
    const without = await startGateway({ cache: false, savings: { ...EAGER, ...off } })

    expect(await on.strategyWith(headers)).toMatch(strategy)
    expect(await without.strategyWith(headers)).not.toMatch(strategy)
  })

  it('all savings, except that invalid headers are still rejected', async () => {
    const { gateway, send, strategyWith } = await startGateway({ cache: false, savings: false })
    const strategies = []
    for (const headers of [SLIDER, VANISHING, RECURSIVE, UNSTEERED]) strategies.push(await strategyWith(headers))
    const invalid = await send(
      '/v1/chat/completions',
      { model: 'extractive/extractive', messages },
      {
        'x-savings-level': 'huge',
      },
    )
    const { plans } = await gateway.savings.explain(
      { model: 'extractive/extractive', messages },
      { plans: ['configured', 'level extreme, forced'] },
    )

    expect(strategies.every((strategy) => strategy?.startsWith('Passthrough'))).toBe(true)
    expect(invalid.status).toBe(400)
    expect(plans.at(-1)?.rewrittenRequests).toBeGreaterThan(0)
    expect(plans.map(({ plan, rewrittenRequests }) => [plan, rewrittenRequests])).toEqual([
      ['off', 0],
      ['configured', 0],
      ['level extreme, forced', expect.any(Number)],
    ])
  })

  it('recordings of streams', async () => {
    const body = { model: 'extractive/extractive', max_tokens: 20, messages: messages.slice(0, 1) }
    const statusOfReplay = async (options: Partial<GatewayOptions>): Promise<number> => {
      const { send } = await startGateway(options)
      const { id } = await (await send('/v1/messages', body)).json()
      return (await send(`/v1/messages/${id}/streams`, {})).status
    }

    expect(await statusOfReplay({})).toBe(200)
    expect(await statusOfReplay({ streams: false })).toBe(404)
  })

  it('batches', async () => {
    const item = {
      custom_id: 'a',
      params: { model: 'extractive/extractive', max_tokens: 5, messages: messages.slice(0, 1) },
    }
    const on = await startGateway({})
    const { gateway, send } = await startGateway({ batches: false })

    expect((await on.send('/v1/messages/batches', { requests: [item] })).status).toBe(200)
    expect((await send('/v1/messages/batches', { requests: [item] })).status).toBe(404)
    expect((await send('/v1/messages/batches', undefined)).status).toBe(404)
    expect((await send('/v1/messages/batches/msgbatch_1/results', undefined)).status).toBe(404)
    await gateway.batches.work()
    await gateway.close()
    await on.gateway.close()
  })

  it('the circuit breaker', async () => {
    const callsOf = async (options: Partial<GatewayOptions>): Promise<number> => {
      let calls = 0
      const fail = async (): Promise<Response> => {
        calls += 1
        return new Response('{"error":{"message":"down"}}', { status: 500 })
      }
      const models = [{ id: 'm', price: { input: 1, output: 1 } }]
      const provider = openaiCompatible({ name: 'down', baseUrl: 'http://vendor/v1', models, fetch: fail })
      const { gateway, send } = await startGateway({
        providers: [provider],
        runtime: { random: () => 0, now: () => 1_800_000_000_000 },
        ...options,
      })
      for (let count = 0; count < 30; count += 1)
        await send('/v1/chat/completions', { model: 'down/m', messages: messages.slice(0, 1) })
      await gateway.close()
      return calls
    }
    const calls = await callsOf({ circuitBreaker: false })

    expect(calls % 30).toBe(0)
    expect(calls).toBeGreaterThan(0)
    expect(await callsOf({})).toBeLessThan(calls)
  })

  it.each(['cache', 'savings', 'streams', 'batches', 'circuitBreaker'])('%s, but not with true', (name) => {
    const options: unknown = { providers: [extractive()], [name]: true }

    expect(() => Reflect.apply(createGateway, undefined, [options])).toThrow(
      `createGateway: ${name}: expected false or an object with options, got true.`,
    )
  })

  it.each([
    [{ slider: 'off' }, 'savings.slider: expected false or "auto" or "query" or "stable", got "off".'],
    [{ promptCache: 'off' }, 'savings.promptCache: expected true or false, got "off".'],
    [{ vanishing: 'off' }, 'savings.vanishing: expected false or an object with options, got "off".'],
  ])('a part of the savings, but not with a text: %j', (savings, text) => {
    const options: unknown = { providers: [extractive()], savings }

    expect(() => Reflect.apply(createGateway, undefined, [options])).toThrow(`createGateway: ${text}`)
  })
})
