import { afterEach, describe, expect, it } from 'vitest'
import { redactEmails } from '../../../examples/plugins/redact-emails.ts'
import { createGateway, createSlot, GatewayError, type Plugin } from '../../../src/index.ts'
import { extractive } from '../../../src/testing.ts'
import type { Json } from '../../../src/core/json.ts'
import { readResults, waitForBatch } from '../../support/batches.ts'
import { KINDS } from '../../support/plugin-requests.ts'
import { sendRequest } from '../../support/send-request.ts'
import { CHAT_MODEL, MESSAGE_MODEL, type Stage, type StageOptions, startStage } from '../../support/stage.ts'
import { buildEvents, gate } from '../../support/upstream.ts'
import { waitFor } from '../../support/wait-until.ts'

let stage: Stage | undefined

async function start(plugins: readonly Plugin[], options: StageOptions = {}): Promise<Stage> {
  stage = await startStage({ plugins, reply: () => 'Written to [email-1].', ...options })
  return stage
}

afterEach(async () => {
  await stage?.close()
  stage = undefined
})

const upperCase: Plugin = {
  name: 'upper-case',
  transformResponse: () => ({
    write: (part) => (part.type === 'text-delta' ? { ...part, text: part.text.toUpperCase() } : undefined),
  }),
}

function chat(content: string, fields = {}) {
  return { model: CHAT_MODEL, max_tokens: 20, messages: [{ role: 'user', content }], ...fields }
}

describe('the cache', () => {
  it.each(KINDS)('is asked with the transformed prompt, and $name restores its own values', async (kind) => {
    const started = await start([redactEmails()], { cache: {} })

    const first = await kind.ask(started, CHAT_MODEL, 'Write to ada@example.com.')
    const second = await kind.ask(started, CHAT_MODEL, 'Write to bob@example.com.')
    const plain = await kind.ask(started, CHAT_MODEL, 'Write to the team.')

    expect([first.text, second.text, plain.text]).toEqual([
      'Written to ada@example.com.',
      'Written to bob@example.com.',
      'Written to [email-1].',
    ])
    expect(started.upstream.requests).toHaveLength(2)
  })

  it('never gives a caller the stream of an identical request that waits', async () => {
    const opened = gate()
    const started = await start([redactEmails()], {
      cache: {},
      reply: async (request) => {
        await opened.opened
        return { kind: 'events', items: buildEvents(request, { text: 'Written to [email-1].' }) }
      },
    })
    const [chatStream] = KINDS.filter(({ name }) => name === 'a chat stream')

    const responses = ['ada', 'bob'].map((name) =>
      chatStream?.ask(started, CHAT_MODEL, `Write to ${name}@example.com.`),
    )
    await started.upstream.waitForRequest(1)
    opened.open()

    expect((await Promise.all(responses)).map((response) => response?.text)).toEqual([
      'Written to ada@example.com.',
      'Written to bob@example.com.',
    ])
  })
})

describe('a repeated request with an Idempotency-Key', () => {
  it.each([false, true])('receives the first answer as it was sent (stream: %s), after onRequest', async (stream) => {
    let calls = 0
    const counter: Plugin = { name: 'counter', onRequest: () => void calls++ }
    const started = await start([counter, upperCase])
    const send = () => sendRequest(started, chat('Hello?', { stream }), { headers: { 'idempotency-key': 'k' } })

    const [first, second] = [await send(), await send()]

    expect(first.text).toContain('EMAIL')
    expect(second.headers['idempotency-replayed']).toBe('true')
    expect(second.text).toBe(first.text)
    expect(calls).toBe(2)
    expect(started.upstream.requests).toHaveLength(1)
  })

  it('is rejected by a guard that rejects it now', async () => {
    let isOpen = true
    const guard: Plugin = {
      name: 'guard',
      onRequest: () => {
        if (!isOpen) throw new GatewayError('invalid-request', 'Closed.')
      },
    }
    const started = await start([guard])
    const send = () => sendRequest(started, chat('Hello?'), { headers: { 'idempotency-key': 'k' } })

    expect((await send()).status).toBe(200)
    isOpen = false
    expect((await send()).status).toBe(400)
  })
})

describe('a recorded message', () => {
  it.each([false, true])('is replayed as the caller received it (stream: %s)', async (stream) => {
    const started = await start([upperCase])
    const body = { ...chat('Hello?', { stream }), model: MESSAGE_MODEL }
    const sent = await sendRequest(started, body, { path: '/v1/messages' })
    const id = /"id":"(msg_[^"]+)"/.exec(sent.text)?.[1] ?? ''

    await waitFor(async () => {
      const replayed = await sendRequest(started, {}, { path: `/v1/messages/${id}/streams` })
      expect(replayed.text).toContain('WRITTEN')
      expect(replayed.text).not.toContain('Written')
    })
  })
})

describe('a stored response', () => {
  it('contains what the caller sent and received, and the next turn is redacted again', async () => {
    const started = await start([redactEmails()])
    const first = await started.openai.responses.create({ model: CHAT_MODEL, input: 'Write to ada@example.com.' })

    const stored = await started.openai.responses.retrieve(first.id)
    await started.openai.responses.create({
      model: CHAT_MODEL,
      input: 'And to bob@example.com.',
      previous_response_id: first.id,
    })

    expect(JSON.stringify(stored.output)).toContain('Written to ada@example.com.')
    const { text } = started.upstream.last
    expect(text).toContain('Write to [email-1].')
    expect(text).toContain('And to [email-2].')
    expect(text).not.toContain('@example')
  })
})

describe('a request whose response plugins change', () => {
  it('is rejected with n above 1, of which a plugin would see one choice only', async () => {
    const started = await start([upperCase])

    expect(await sendRequest(started, chat('Hello?', { n: 2 }))).toMatchObject({ status: 400, error: { param: 'n' } })
  })

  it('is rejected in the background, where the vendor stores it', async () => {
    const started = await start([upperCase])
    const body = { model: CHAT_MODEL, input: 'Hello?', background: true }

    const { status, error } = await sendRequest(started, body, { path: '/v1/responses' })

    expect([status, error['param']]).toEqual([400, 'background'])
  })
})

describe('the prompt of a plugin', () => {
  it('keeps tool calls with their results, and redacts both', async () => {
    const started = await start([redactEmails()])
    const messages = [
      { role: 'user', content: 'Find ada@example.com' },
      {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'c1', type: 'function', function: { name: 'find', arguments: '{"q":"ada@example.com"}' } }],
      },
      { role: 'tool', tool_call_id: 'c1', content: 'bob@example.com' },
    ]

    for (const model of [CHAT_MODEL, MESSAGE_MODEL]) {
      expect((await sendRequest(started, chat('', { messages, model }))).status).toBe(200)
      expect(started.upstream.last.text).toContain('[email-2]')
      expect(started.upstream.last.text).not.toContain('@example')
    }
  })

  it('cannot lose the result of a call', async () => {
    const dropResults: Plugin = {
      name: 'drop-results',
      transformPrompt: (_, { messages }) => ({ messages: messages.filter(({ role }) => role !== 'tool') }),
    }
    const started = await start([dropResults])
    const call = { id: 'c1', type: 'function', function: { name: 'find', arguments: '{}' } }
    const messages = [
      { role: 'user', content: 'Find' },
      { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', tool_call_id: 'c1', content: 'Found' },
    ]

    expect((await sendRequest(started, chat('', { messages }))).status).toBe(500)
    expect(started.upstream.requests).toHaveLength(0)
  })

  it('is covered by the reservation, so that a longer prompt is rejected by a budget that it exceeds', async () => {
    const longer: Plugin = {
      name: 'longer',
      transformPrompt: (_, { messages }) => ({
        messages: [...messages, { role: 'user', parts: [{ type: 'text', text: 'long '.repeat(10_000) }] }],
      }),
    }
    const started = await start([longer], { key: { name: 'small', budgetLimitCents: 1, budgetResetDuration: '1M' } })

    expect((await sendRequest(started, chat('Hello?'))).status).toBe(402)
    expect(started.upstream.requests).toHaveLength(0)
  })

  it('cannot be changed in place', async () => {
    const mutate: Plugin = {
      name: 'mutate',
      transformPrompt: (_, { messages }) => {
        for (const { parts } of messages) for (const part of parts) Object.assign(part, { text: 'changed' })
      },
    }
    const started = await start([mutate])

    expect((await sendRequest(started, chat('Hello?'))).status).toBe(500)
  })
})

describe('other endpoints', () => {
  const endpoints = createSlot<string>()
  const seen: string[] = []
  const observer: Plugin = {
    name: 'observer',
    onRequest: (exchange) => endpoints.set(exchange, exchange.endpoint),
    onEnd: (exchange, { status }) => void seen.push(`${endpoints.get(exchange)} ${exchange.endpoint} ${status}`),
  }

  it('token counts count the transformed prompt', async () => {
    seen.length = 0
    const longer: Plugin = {
      name: 'longer',
      transformPrompt: (_, { messages }) => ({
        messages: [...messages, { role: 'user', parts: [{ type: 'text', text: 'word '.repeat(500) }] }],
      }),
    }
    const started = await start([observer, longer])
    const body = { model: CHAT_MODEL, messages: [{ role: 'user', content: 'Hello?' }] }

    const counted = await sendRequest(started, body, { path: '/v1/messages/count_tokens' })

    expect(counted.body['input_tokens']).toBeGreaterThan(500)
    await waitFor(() => expect(seen).toEqual(['count count 200']))
  })

  it('embeddings are made of the transformed inputs', async () => {
    seen.length = 0
    const shorten: Plugin = {
      name: 'redact',
      transformPrompt: (_, { messages }) => ({
        messages: messages.map(({ role }) => ({ role, parts: [{ type: 'text', text: 'same' }] })),
      }),
    }
    const started = await start([observer, shorten], { providers: [extractive()] })
    const send = (input: Json) =>
      sendRequest(started, { model: 'extractive/extractive-embedding', input }, { path: '/v1/embeddings' })

    const { body, text } = await send(['one', 'two'])
    const data = body['data'] as readonly { readonly embedding: unknown }[]

    expect(data, text).toHaveLength(2)
    expect(data[0]?.embedding).toEqual(data[1]?.embedding)
    expect((await send([[1, 2, 3]])).status).toBe(400)
    await waitFor(() => expect(seen).toEqual(['embeddings embeddings 200', 'embeddings embeddings 400']))
  })

  it('passthrough requests run onRequest and onEnd', async () => {
    seen.length = 0
    const started = await start([observer], {
      passthrough: { moderations: { free: true, provider: 'chat' } },
      reply: () => ({ kind: 'json', value: { results: [] } }),
    })

    const { status } = await sendRequest(started, { input: 'text' }, { path: '/v1/moderations' })

    expect(status).toBe(200)
    await waitFor(() => expect(seen).toEqual(['passthrough passthrough 200']))
  })

  it('items of a batch run all hooks', async () => {
    seen.length = 0
    const started = await start([observer, redactEmails(), upperCase])
    const { id } = await started.anthropic.messages.batches.create({
      requests: [
        {
          custom_id: 'one',
          params: {
            model: MESSAGE_MODEL,
            max_tokens: 20,
            messages: [{ role: 'user', content: 'Write to ada@example.com.' }],
          },
        },
      ],
    })
    await waitForBatch(started.anthropic, id)

    const [result] = await readResults(started.anthropic, id)

    expect(JSON.stringify(result)).toContain('WRITTEN TO [EMAIL-1].')
    expect(started.upstream.last.text).not.toContain('@example')
    await waitFor(() => expect(seen).toEqual(['messages messages 200']))
  })

  it('an explanation plans with the transformed prompt and runs no other hook', async () => {
    const calls: string[] = []
    const started = await start([
      { name: 'a', transformPrompt: () => void calls.push('prompt'), onLookup: () => void calls.push('lookup') },
    ])

    const { status } = await sendRequest(started, chat('Hello?'), { headers: { 'x-svc-explain': 'true' } })

    expect([status, calls]).toEqual([200, ['prompt']])
  })

  it('a rejected request without a key is reported to onEnd', async () => {
    seen.length = 0
    const started = await start([observer])

    await sendRequest(started, chat('Hello?'), { secret: null })

    await waitFor(() => expect(seen).toEqual(['undefined chat 401']))
  })
})

describe('the options of a plugin', () => {
  it.each([
    [[{ name: 'a', onRequests: () => {} }], 'plugins[0].onRequests: there is no such option. Did you mean onRequest?'],
    [[{ name: 'a b' }], 'plugins[0].name: expected up to 64 letters'],
    [[{ name: 'a', timeoutMs: 30_001 }], 'plugins[0].timeoutMs: expected an integer from 1 to 30000 milliseconds'],
    [[{ name: 'a', onFailure: 'ignore' }], 'plugins[0].onFailure: expected "reject" or "skip"'],
    [[{ name: 'a', onEnd: true }], 'plugins[0].onEnd: expected a function'],
    [[{ onEnd: () => {} }], 'plugins[0].name: expected'],
    [[{ name: 'a' }, { name: 'a' }], 'plugins: expected unique names'],
  ])('are checked: %o', (plugins, message) => {
    expect(() => createGateway({ providers: [extractive()], plugins: plugins as Plugin[] })).toThrow(message)
  })
})

describe('closing the gateway', () => {
  it('waits for close of each plugin, and rejects with a failure after all have closed', async () => {
    const closed: string[] = []
    const close = async (): Promise<void> => void closed.push('slow')
    const gateway = createGateway({
      providers: [extractive()],
      plugins: [
        { name: 'broken', close: () => Promise.reject(new Error('broken')) },
        { name: 'slow', close },
      ],
    })

    await expect(gateway.close()).rejects.toThrow('broken')
    expect(closed).toEqual(['slow'])
  })
})
