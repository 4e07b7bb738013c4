import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { CHAT, CROSSINGS, eventsOf, MESSAGE, wordsOf, type Front } from '../support/ask.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { post, readerOf } from '../support/streams.ts'
import { CUT, framesOf, gate, type Reply, type UpstreamRequest } from '../support/upstream.ts'
import { watchedStore, type WatchedStore } from '../support/watched-store.ts'

/**
 * Upstreams that answer 200 and then say nothing. The gateway holds the headers for 5 seconds, so all cases wait at the
 * same time.
 */
interface Waiting {
  readonly stage: Stage
  readonly store: WatchedStore
  /** The upstream goes on. */
  readonly open: () => void
  readonly response: Promise<Response>
}

const BOTH = [
  { provider: 'chat', weight: 1 },
  { provider: 'anthropic', weight: 1 },
]

async function startWaiting(front: Front, rest: (request: UpstreamRequest) => readonly (string | object | symbol)[]) {
  const store = watchedStore()
  const { opened, open } = gate()
  const reply = (request: UpstreamRequest): Reply => ({
    kind: 'events',
    items: [opened, ...rest(request)] as Extract<Reply, { kind: 'events' }>['items'],
  })
  const key = { name: 'both', budget_limit_cents: 1000, provider_configs: BOTH }
  const stage = await startStage({ store, reply, key, limits: { heartbeatMs: 50 } })
  return { stage, store, open, response: post(stage, front.path, { body: { ...front.body, stream: true } }) }
}

/** Reads until a heartbeat has come. */
async function readHeartbeat(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder()
  let text = ''
  while (!/^: ping|^event: ping/m.test(text)) {
    const { value, done } = await reader.read()
    if (done) throw new Error('the stream ended without a heartbeat')
    text += decoder.decode(value, { stream: true })
  }
  return text
}

async function readRest(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder()
  let text = ''
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) text += decoder.decode(piece.value)
  return text
}

const lateOnes = new Map<string, Waiting>()
const cutOnes = new Map<string, Waiting>()

beforeAll(async () => {
  for (const front of CROSSINGS) {
    const late = await startWaiting(front, (request) => framesOf(request, { text: ['At', ' last.'] }))
    lateOnes.set(front.name, late)
    cutOnes.set(front.name, await startWaiting({ ...front, body: { ...front.body, model: 'large' } }, () => [CUT]))
  }
  await Promise.all([...lateOnes.values(), ...cutOnes.values()].map(({ response }) => response))
})
afterAll(async () => {
  for (const { stage, open } of [...lateOnes.values(), ...cutOnes.values()]) {
    open()
    await stage.close()
  }
})

function waiting(ones: ReadonlyMap<string, Waiting>, { name }: Front): Waiting {
  const found = ones.get(name)
  if (found === undefined) throw new Error(`no stream waits on the ${name}`)
  return found
}

describe.each(CROSSINGS)('a stream on the $name whose upstream answers 200 and is silent', (front) => {
  it('sends its headers and heartbeats, and then the content of the upstream', async () => {
    const late = waiting(lateOnes, front)
    const response = await late.response
    expect(response.status).toBe(200)
    expect(response.headers.get('content-type')).toContain('text/event-stream')
    expect(response.headers.get('x-svc-estimated')).toBe('true')
    const reader = readerOf(response)
    const before = await readHeartbeat(reader)
    expect(wordsOf(before)).toBe('')
    late.open()
    const text = before + (await readRest(reader))

    expect(wordsOf(text)).toBe('At last.')
    expect(text).toMatch(/^data: \[DONE\]$|^event: message_stop$/m)
    expect(late.stage.upstream.requests).toHaveLength(1)
    await late.store.allSettled()
    expect(late.store.booked().billed).toBeGreaterThan(0)
  })

  it('ends with an error event when the upstream then breaks off, without a fallback and without a bill', async () => {
    const cut = waiting(cutOnes, front)
    const reader = readerOf(await cut.response)
    await readHeartbeat(reader)
    cut.open()
    const last = eventsOf(await readRest(reader)).at(-1)

    expect(last?.data).toMatchObject({ error: { type: 'upstream_error', message: expect.any(String) } })
    expect(cut.stage.upstream.requests).toHaveLength(1)
    await cut.store.allSettled()
    const { billed, actual } = cut.store.booked()
    expect(billed).toBe(0)
    expect(actual).toBeGreaterThan(0)
  })
})

describe('the official clients', () => {
  it('read a stream whose first event is a heartbeat', async () => {
    const { opened, open } = gate()
    const reply = (request: UpstreamRequest): Reply => ({
      kind: 'events',
      items: [opened, ...framesOf(request, { text: ['At', ' last.'] })],
    })
    const stage = await startStage({ reply, limits: { heartbeatMs: 20 } })
    const messages = [{ role: 'user' as const, content: 'Hello?' }]
    const question = { max_tokens: 20, messages, stream: true as const }
    const [chat, message] = await Promise.all([
      stage.openai.chat.completions.create({ ...question, model: CHAT.model }),
      stage.anthropic.messages.create({ ...question, model: MESSAGE.model }),
    ])
    open()
    let said = ''
    for await (const chunk of chat) said += chunk.choices[0]?.delta.content ?? ''
    for await (const event of message) {
      if (event.type === 'content_block_delta' && event.delta.type === 'text_delta') said += event.delta.text
    }
    expect(said).toBe('At last.At last.')
    await stage.close()
  })
})
