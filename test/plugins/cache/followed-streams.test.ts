import { afterEach, describe, expect, it } from 'vitest'
import { Cancellation } from '../../../src/core/async.ts'
import { ZERO } from '../../../src/core/money.ts'
import { messagesClient } from '../../../src/formats/messages/client.ts'
import { createGateway, memoryStore, openaiCompatible, type Gateway } from '../../../src/index.ts'
import { followStream } from '../../../src/plugins/cache/follow.ts'
import type { LiveStream } from '../../../src/streams/live-stream.ts'
import { manualRuntime } from '../../support/manual-runtime.ts'
import { getReader } from '../../support/read-stream.ts'
import {
  CUT,
  buildEvents,
  formatEvent,
  gate,
  startUpstream,
  type StreamItem,
  type Upstream,
} from '../../support/upstream.ts'

const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close()
})

interface FollowedStage {
  readonly upstream: Upstream
  readonly gateway: Gateway
  readonly ask: (body?: object) => Promise<StreamReading>
}

/** The upstream sends `Par`, then waits for `opened`, then sends `after`, or else the rest of the response. */
async function open(opened: Promise<unknown>, after?: readonly StreamItem[]): Promise<FollowedStage> {
  const upstream = await startUpstream({
    reply: (request) => {
      const events = buildEvents(request, { text: ['Par', 'is.'] })
      const rest = events.findIndex(({ data }) => data.includes('is.'))
      return { kind: 'events', items: [...events.slice(0, rest), opened, ...(after ?? events.slice(rest))] }
    },
  })
  closers.push(() => upstream.close())
  const models = [{ id: 'large', price: { input: 1, output: 2 }, contextWindowTokens: 200_000, maxOutputTokens: 1_000 }]
  const chat = openaiCompatible({ name: 'chat', baseUrl: upstream.baseUrl, apiKey: 'sk-upstream-secret', models })
  const gateway = createGateway({ providers: [chat], store: memoryStore() })
  closers.push(() => gateway.close())
  const { value } = await gateway.keys.create({ name: 'own', budget_limit_cents: 100 })
  const ask = async (more: object = {}): Promise<StreamReading> => {
    const messages = [{ role: 'user', content: 'What is the capital of France?' }]
    const response = await gateway.fetch('http://gateway/v1/chat/completions', {
      method: 'POST',
      headers: { authorization: `Bearer ${value}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'chat/large', stream: true, messages, ...more }),
    })
    return reading(response)
  }
  return { upstream, gateway, ask }
}

/** A response that the test reads in pieces. */
interface StreamReading {
  readonly response: Response
  /** Resolves when the text has arrived, or when the stream has ended. */
  until(text: string): Promise<string>
  readonly leave: () => Promise<void>
}

function reading(response: Response): StreamReading {
  const reader = getReader(response)
  const decoder = new TextDecoder()
  let read = ''
  return {
    response,
    until: async (text) => {
      while (!read.includes(text)) {
        const { value, done } = await reader.read()
        if (done) break
        read += decoder.decode(value, { stream: true })
      }
      return read
    },
    leave: () => reader.cancel(),
  }
}

describe('a stream that is identical to one in flight', () => {
  it('receives the events as they are generated, from the first one on, without an upstream call', async () => {
    const { open: go, opened } = gate()
    const { upstream, ask } = await open(opened)
    const first = await ask()
    await first.until('Par')
    const second = await ask()
    expect(await second.until('Par')).not.toContain('is.')
    go()
    const texts = [await first.until('[DONE]'), await second.until('[DONE]')]
    for (const text of texts) {
      expect(text).toContain('"content":"is."')
      expect(text.trimEnd().endsWith('data: [DONE]')).toBe(true)
    }
    expect(second.response.headers.get('x-svc-cache')).toBe('HIT')
    expect(texts[1]).toContain('"billed_amount":0')
    expect(upstream.requests).toHaveLength(1)
  })

  it('receives the whole answer when the caller of the other request disconnects', async () => {
    const { open: go, opened } = gate()
    const { upstream, ask } = await open(opened)
    const first = await ask()
    await first.until('Par')
    const second = await ask()
    await second.until('Par')
    await first.leave()
    go()
    expect(await second.until('[DONE]')).toContain('data: [DONE]')
    expect(upstream.requests).toHaveLength(1)
  })

  it('ends with an error when the upstream breaks off', async () => {
    const { open: go, opened } = gate()
    const { upstream, ask } = await open(opened, [CUT])
    const first = await ask()
    await first.until('Par')
    const second = await ask()
    await second.until('Par')
    go()
    expect(await second.until('[DONE]')).toContain('"error"')
    expect(upstream.requests).toHaveLength(1)
  })

  it('does not affect the other request when its own caller disconnects', async () => {
    const { open: go, opened } = gate()
    const { ask } = await open(opened)
    const first = await ask()
    await first.until('Par')
    const second = await ask()
    await second.until('Par')
    await second.leave()
    go()
    expect(await first.until('[DONE]')).toContain('data: [DONE]')
  })

  it('calls the upstream itself when it asks for several choices', async () => {
    const { open: go, opened } = gate()
    const { upstream, ask } = await open(opened)
    const first = await ask({ n: 2 })
    await first.until('Par')
    go()
    const second = await ask({ n: 2 })
    expect(await second.until('[DONE]')).toContain('data: [DONE]')
    expect(upstream.requests).toHaveLength(2)
  })
})

it.each([
  ['empty', '', false],
  ['not empty', 'Paris', true],
])('a stream that fails after a text that is %s is followed only if it has content', async (_, text, isFollowed) => {
  const model = {
    id: 'large',
    family: 'large',
    price: { input: 1, output: 2 },
    contextWindowTokens: 1,
    maxOutputTokens: 1,
  }
  const provider = openaiCompatible({ name: 'chat', baseUrl: 'http://upstream/v1', models: [model] })
  const message = { id: 'msg_1', model: 'large', usage: {} }
  const events = [
    { type: 'message_start', message },
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text } },
  ]
  const live: LiveStream = {
    metadata: { dialect: 'messages' },
    summary: () => ({}),
    follow: (sink) => {
      for (const event of events) sink.write(formatEvent({ event: event.type, data: JSON.stringify(event) }))
      sink.fail(new Error('The upstream closed the connection.'))
      return () => {}
    },
  }
  const followed = await followStream(
    {
      format: messagesClient,
      id: 'req_1',
      cancellation: new Cancellation(),
      margin: 1,
      resolved: { name: 'chat/large', routes: [{ provider, model }] },
      size: { estimate: 1, prepareEstimate: () => undefined, billedCacheWrites: () => undefined },
    },
    { countAsHit: () => {}, spent: ZERO },
    { live },
    { runtime: manualRuntime(() => expect.unreachable()) },
  )

  expect(followed !== undefined).toBe(isFollowed)
})
