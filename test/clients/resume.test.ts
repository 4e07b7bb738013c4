import { ConflictError, NotFoundError, type Anthropic } from '@anthropic-ai/sdk'
import OpenAI from 'openai'
import { afterEach, describe, expect, it } from 'vitest'
import { sendRequest } from '../support/send-request.ts'
import { CHAT_MODEL, MESSAGE_MODEL, startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { splitEvents, messageIdOf } from '../support/read-stream.ts'
import { buildEvents, gate, type UpstreamRequest } from '../support/upstream.ts'

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((openStage) => openStage.close()))
})

async function stage(options: StageOptions = {}): Promise<Stage> {
  const started = await startStage(options)
  stages.push(started)
  return started
}

const question = {
  model: MESSAGE_MODEL,
  max_tokens: 50,
  messages: [{ role: 'user' as const, content: 'What is a sluice?' }],
}

const RESPONSE = {
  text: ['A gate', ' for', ' water.'],
  toolCalls: [{ name: 'look', input: '{"what":"sluice","deep":true}' }],
}

/** Reads a replayed stream with the official client. */
async function replayStream(client: Anthropic, id: string, body: object = {}): Promise<readonly unknown[]> {
  const events = await client.post<AsyncIterable<unknown>>(`/v1/messages/${id}/streams`, { body, stream: true })
  return collectItems(events)
}

describe('the official client of the message format, on a real port', () => {
  it('reads a finished stream again, whole or from any event on', async () => {
    const { anthropic } = await stage({ reply: () => RESPONSE })
    const events = await collectItems(await anthropic.messages.create({ ...question, stream: true }))
    const [start] = events
    const id = start?.type === 'message_start' ? start.message.id : ''

    expect(await replayStream(anthropic, id)).toEqual(events)
    // The ping of the upstream is an event with an id, which the client does not emit.
    expect(await replayStream(anthropic, id, { starting_after: 5 })).toEqual(events.slice(4))
  })

  it('reads a message that was not streamed as a stream', async () => {
    const { anthropic } = await stage({ reply: () => ({ ...RESPONSE, thinking: 'Gates.' }) })
    for (const model of [MESSAGE_MODEL, CHAT_MODEL]) {
      const message = await anthropic.messages.create({ ...question, model })
      const events = await replayStream(anthropic, message.id)

      expect(await messageOf(events)).toMatchObject({
        id: message.id,
        content: message.content,
        stop_reason: message.stop_reason,
        usage: { output_tokens: message.usage.output_tokens },
      })
      expect(events.find((event) => (event as { type: string }).type === 'message_delta')).toMatchObject({
        svc_metrics: (message as unknown as Record<string, unknown>)['svc_metrics'],
      })
    }
  })

  it('reads a cached answer again, with the bill of the hit', async () => {
    const { anthropic, upstream } = await stage({ cache: {}, reply: () => 'A gate.' })
    const first = await anthropic.messages.create(question)
    const hit = await anthropic.messages.create(question)
    const streamed = await collectItems(await anthropic.messages.create({ ...question, stream: true }))
    const [start] = streamed
    const ids = [first.id, hit.id, start?.type === 'message_start' ? start.message.id : '']

    expect(upstream.requests).toHaveLength(1)
    expect(new Set(ids).size).toBe(3)
    for (const id of ids)
      expect(await messageOf(await replayStream(anthropic, id))).toMatchObject({ content: first.content })
    expect(await replayStream(anthropic, ids[2]!)).toEqual(streamed)
    expect(JSON.stringify(await replayStream(anthropic, hit.id))).toContain('"savings_percent":100')
  })

  it('receives the same NotFoundError for an unknown id and for the id of another key', async () => {
    const { anthropic, gateway } = await stage()
    const { id } = await anthropic.messages.create(question)
    const other = anthropic.withOptions({ apiKey: (await gateway.keys.create({ name: 'other' })).value })
    const failures = await Promise.all(
      [replayStream(other, id), replayStream(anthropic, 'msg_unknown')].map((asked) =>
        asked.catch((error: unknown) => error),
      ),
    )
    for (const failure of failures) expect(failure).toBeInstanceOf(NotFoundError)
    const [words] = failures.map((failure) => (failure as NotFoundError).error)
    expect(words).toMatchObject({ error: { type: 'invalid_request_error' } })
    expect((failures[0] as NotFoundError).message.replace(/req_\w+/, '')).toBe(
      (failures[1] as NotFoundError).message.replace(/req_\w+/, ''),
    )
  })

  it('resumes a detached stream after a disconnect', async () => {
    const opened = gate()
    const { anthropic, upstream, gateway, keyId } = await stage({
      reply: (request) => ({ kind: 'events', items: pauseAfterFirstText(request, opened.opened) }),
    })
    const first = await anthropic.messages.create(
      { ...question, stream: true },
      { headers: { 'x-svc-detach': 'true' } },
    )
    let id = ''
    for await (const event of first) {
      if (event.type === 'message_start') id = event.message.id
      if (event.type === 'content_block_delta') break
    }
    opened.open()
    const message = await messageOf(await replayStream(anthropic, id))

    expect(message).toMatchObject({ content: [{ text: 'A gate for water.' }, { name: 'look' }] })
    expect(upstream.requests).toHaveLength(1)
    expect((await gateway.audit.read({ keyId })).records).toMatchObject([{ outcome: 'answered', status: 200 }])
  })

  it('sends a request again with its Idempotency-Key and is answered once', async () => {
    const { anthropic, upstream } = await stage()
    const headers = { 'idempotency-key': 'c0ffee' }
    const asked = Array.from({ length: 4 }, () => anthropic.messages.create(question, { headers }).withResponse())
    const responses = await Promise.all(asked)

    expect(upstream.requests).toHaveLength(1)
    expect(new Set(responses.map(({ data }) => JSON.stringify(data))).size).toBe(1)
    expect(responses.filter(({ response }) => response.headers.get('idempotency-replayed') === 'true')).toHaveLength(3)
    const other = { ...question, max_tokens: 51 }
    await expect(anthropic.withOptions({ maxRetries: 2 }).messages.create(other, { headers })).rejects.toThrow(
      ConflictError,
    )
  })
})

describe('the official client of the chat format, on a real port', () => {
  it('sends a request again with its idempotencyHeader and is answered once, streamed or not', async () => {
    const { openai, upstream } = await stage({ reply: () => ({ text: ['A gate', '.'] }) })
    const chat = { ...question, model: CHAT_MODEL }
    class Idempotent extends OpenAI {
      protected override idempotencyHeader: string = 'idempotency-key'
    }
    const client = new Idempotent({ baseURL: openai.baseURL, apiKey: openai.apiKey, maxRetries: 0 })
    const whole = await Promise.all(
      [1, 2, 3].map(() => client.chat.completions.create(chat, { idempotencyKey: 'whole' })),
    )
    const streams = await Promise.all(
      [1, 2, 3].map(async () =>
        collectItems(await client.chat.completions.create({ ...chat, stream: true }, { idempotencyKey: 'stream' })),
      ),
    )

    expect(upstream.requests).toHaveLength(2)
    for (const other of whole) expect(other).toEqual(whole[0])
    for (const other of streams) expect(other).toEqual(streams[0])
  })

  it('receives the answer of the first request when it retries after a disconnect', async () => {
    const opened = gate()
    const started = await stage({ reply: async () => (await opened.opened, 'A gate.') })
    const body = { ...question, model: CHAT_MODEL }
    const headers = { 'idempotency-key': 'lost', 'x-svc-detach': 'true' }
    const lost = new AbortController()
    const first = sendRequest(started, body, { headers, signal: lost.signal })
    await started.upstream.waitForRequest(1)
    lost.abort()
    await expect(first).rejects.toThrow()
    const second = sendRequest(started, body, { headers })
    opened.open()

    expect((await second).status).toBe(200)
    expect(started.upstream.requests).toHaveLength(1)
  })
})

it('Last-Event-ID and starting_after have the same effect; the later one applies', async () => {
  const started = await stage({ reply: () => RESPONSE })
  const whole = (await sendRequest(started, { ...question, stream: true }, { path: '/v1/messages' })).text
  const events = splitEvents(whole)
  const path = `/v1/messages/${messageIdOf(whole)}/streams`
  const responses = await Promise.all([
    sendRequest(started, undefined, { path, headers: { 'last-event-id': '3', 'content-type': undefined } }),
    sendRequest(started, { starting_after: 3 }, { path }),
    sendRequest(started, { starting_after: 1 }, { path, headers: { 'last-event-id': '3' } }),
    sendRequest(started, {}, { path, headers: { 'last-event-id': '3' } }),
  ])

  for (const { status, text, headers } of responses) {
    expect(status).toBe(200)
    expect(headers['content-type']).toBe('text/event-stream; charset=utf-8')
    expect(text).toBe(events.slice(3).join(''))
  }
})

async function collectItems<item>(items: AsyncIterable<item>): Promise<readonly item[]> {
  const all: item[] = []
  for await (const item of items) all.push(item)
  return all
}

async function* pauseAfterFirstText(request: UpstreamRequest, opened: Promise<void>) {
  const events = buildEvents(request, RESPONSE)
  yield* events.slice(0, 5)
  await opened
  yield* events.slice(5)
}

/** Returns the events as the official client parses them. */
async function messageOf(events: readonly unknown[]): Promise<Anthropic.Message> {
  const lines = events.map((event) => `${JSON.stringify(event)}\n`).join('')
  const { MessageStream } = await import('@anthropic-ai/sdk/lib/MessageStream')
  return MessageStream.fromReadableStream(new Response(lines).body!).finalMessage()
}
