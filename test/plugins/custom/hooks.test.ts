import { afterEach, describe, expect, it } from 'vitest'
import { createSlot, GatewayError, type Plugin, type PluginOutcome } from '../../../src/index.ts'
import { KINDS } from '../../support/plugin-requests.ts'
import { CHAT_MODEL, MESSAGE_MODEL, type Stage, type StageOptions, startStage } from '../../support/stage.ts'
import { waitUntil } from '../../support/wait-until.ts'

const MODELS = [CHAT_MODEL, MESSAGE_MODEL]
const CASES = KINDS.flatMap((kind) => MODELS.map((model) => ({ name: `${kind.name} from ${model}`, kind, model })))

let stage: Stage | undefined

async function start(plugins: readonly Plugin[], options: StageOptions = {}): Promise<Stage> {
  stage = await startStage({ plugins, reply: () => 'The upstream answers.', ...options })
  return stage
}

afterEach(async () => {
  await stage?.close()
  stage = undefined
})

async function billed(started: Stage): Promise<unknown> {
  const { requests, cost } = await started.gateway.keys.usage(started.keyId)
  return { requests, cost }
}

describe.each(CASES)('$name', ({ kind, model }) => {
  it('is answered by onRequest without an upstream call and at no cost', async () => {
    const outcomes: PluginOutcome[] = []
    const started = await start([
      {
        name: 'reply',
        onRequest: () => ({ content: 'The plugin answers.' }),
        onEnd: (_, end) => void outcomes.push(end),
      },
    ])

    expect(await kind.ask(started, model, 'Hello?')).toMatchObject({ text: 'The plugin answers.', error: undefined })

    expect(started.upstream.requests).toHaveLength(0)
    await waitUntil(() => outcomes.length === 1)
    expect(outcomes).toMatchObject([{ status: 200, bill: { billed: 0, actual: 0 }, isCacheHit: false }])
  })

  it('is answered by onLookup and transformed like an answer of the upstream', async () => {
    const started = await start([
      { name: 'lookup', onLookup: (_, { messages }) => ({ content: `${messages.length} message` }) },
      {
        name: 'shout',
        transformResponse: () => ({
          write: (part) => (part.type === 'text-delta' ? { ...part, text: part.text.toUpperCase() } : undefined),
        }),
      },
    ])

    expect(await kind.ask(started, model, 'Hello?')).toMatchObject({ text: '1 MESSAGE', error: undefined })
    expect(started.upstream.requests).toHaveLength(0)
  })

  it('is rejected by an error of onRequest with its status', async () => {
    const started = await start([
      {
        name: 'guard',
        onRequest: () => {
          throw new GatewayError('model-not-allowed', 'Not at this time.', { code: 'closed' })
        },
      },
    ])

    const { error } = await kind.ask(started, model, 'Hello?')

    expect(error).toMatchObject({ status: 403, message: expect.stringContaining('Not at this time.') })
    expect(started.upstream.requests).toHaveLength(0)
  })

  it('is sent with the prompts that the plugins made, in the order of the list', async () => {
    const append = (name: string): Plugin => ({
      name,
      transformPrompt: (_, { messages }) => ({
        messages: messages.map((message) => ({
          ...message,
          parts: message.parts.map((part) => (part.type === 'text' ? { ...part, text: `${part.text} ${name}` } : part)),
        })),
      }),
    })
    const started = await start([append('first'), append('second')])

    await kind.ask(started, model, 'Hello?')

    expect(started.upstream.last.text).toContain('Hello? first second')
  })

  it('is sent with a system message that a plugin adds', async () => {
    const started = await start([
      {
        name: 'system',
        transformPrompt: (_, { messages }) => ({
          messages: [{ role: 'system', parts: [{ type: 'text', text: 'Answer in rhymes.' }] }, ...messages],
        }),
      },
    ])

    expect((await kind.ask(started, model, 'Hello?')).error).toBeUndefined()

    expect(started.upstream.last.text).toContain('Answer in rhymes.')
    expect(started.upstream.last.text).toContain('Hello?')
  })

  it('passes its response through the plugins in reverse order', async () => {
    const wrap = (name: string): Plugin => ({
      name,
      transformResponse: () => ({ end: () => ({ type: 'text-delta', text: ` ${name}` }) }),
    })
    const started = await start([wrap('outer'), wrap('inner')])

    expect(await kind.ask(started, model, 'Hello?')).toMatchObject({
      text: 'The upstream answers. inner outer',
      error: undefined,
    })
  })

  it('ends with an ending of a plugin, and is billed for the upstream', async () => {
    const outcomes: PluginOutcome[] = []
    const started = await start([
      {
        name: 'stop',
        transformResponse: () => ({
          write: (part) =>
            part.type === 'text-delta'
              ? { parts: [{ type: 'text-delta', text: 'Stopped.' }], finish: 'filtered' }
              : undefined,
        }),
        onEnd: (_, outcome) => void outcomes.push(outcome),
      },
    ])

    expect(await kind.ask(started, model, 'Hello?')).toMatchObject({ text: 'Stopped.', error: undefined })

    await waitUntil(() => outcomes.length === 1)
    expect(outcomes[0]?.bill?.billed).toBeGreaterThan(0)
    expect(await billed(started)).toMatchObject({ requests: 1 })
  })

  it('ends with an error of transformResponse, and is billed once for the upstream', async () => {
    const outcomes: PluginOutcome[] = []
    const started = await start([
      {
        name: 'guard',
        transformResponse: () => ({
          write: (part) => {
            if (part.type === 'text-delta') throw new GatewayError('invalid-request', 'The answer is not allowed.')
          },
        }),
        onEnd: (_, outcome) => void outcomes.push(outcome),
      },
    ])

    const { text, error } = await kind.ask(started, model, 'Hello?')

    expect(text).toBe('')
    expect(error?.message).toContain('The answer is not allowed.')
    if (!kind.isStream) expect(error?.status).toBe(400)
    await waitUntil(() => outcomes.length === 1)
    expect(outcomes[0]?.failure?.kind).toBe('invalid-request')
    expect(outcomes[0]?.bill?.billed).toBeGreaterThan(0)
    expect(started.upstream.requests).toHaveLength(1)
  })

  it('is reported to the observing hooks with one slot', async () => {
    const slot = createSlot<string[]>()
    const seen: unknown[] = []
    const started = await start([
      {
        name: 'observer',
        onRequest: (exchange) => slot.set(exchange, [exchange.endpoint, exchange.keyName]),
        onAttempt: (exchange, { number, provider }) => {
          slot.get(exchange)?.push(`${number} ${provider}`)
          return ({ failure }) => void slot.get(exchange)?.push(failure?.kind ?? 'answered')
        },
        onEnd: (exchange, { status, usage, bill }) =>
          void seen.push({ slot: slot.get(exchange), status, usage, billed: bill?.billed, headers: exchange.headers }),
      },
    ])

    await kind.ask(started, model, 'Hello?')

    await waitUntil(() => seen.length === 1)
    const endpoint = kind.name.includes('chat') ? 'chat' : kind.name.includes('message') ? 'messages' : 'responses'
    expect(seen).toMatchObject([
      {
        slot: [endpoint, 'stage', `1 ${model.split('/')[0]}`, 'answered'],
        status: 200,
        usage: { outputTokens: expect.any(Number) },
        billed: expect.any(Number),
      },
    ])
    expect(JSON.stringify(seen)).not.toContain(started.secret)
  })
})
