import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { CHAT, FORMAT_PAIRS, parseEvents, MESSAGE, streamedText, type Endpoint } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { post, getReader } from '../support/read-stream.ts'
import { CUT, buildEvents, gate, type Reply, type UpstreamRequest } from '../support/upstream.ts'
import { recordingStore, type RecordingStore } from '../support/recording-store.ts'

/**
 * Upstreams that answer 200 and then send nothing. The gateway holds the headers for 5 seconds, so all cases wait
 * concurrently.
 */
interface SilentStream {
  readonly stage: Stage
  readonly store: RecordingStore
  /** Lets the upstream continue. */
  readonly open: () => void
  readonly response: Promise<Response>
}

const BOTH = [
  { provider: 'chat', weight: 1 },
  { provider: 'anthropic', weight: 1 },
]

async function startSilentStream(
  endpoint: Endpoint,
  rest: (request: UpstreamRequest) => readonly (string | object | symbol)[],
) {
  const store = recordingStore()
  const { opened, open } = gate()
  const reply = (request: UpstreamRequest): Reply => ({
    kind: 'events',
    items: [opened, ...rest(request)] as Extract<Reply, { kind: 'events' }>['items'],
  })
  const key = { name: 'both', budget_limit_cents: 1000, provider_configs: BOTH }
  const stage = await startStage({ store, reply, key, limits: { heartbeatMs: 50 } })
  return { stage, store, open, response: post(stage, endpoint.path, { body: { ...endpoint.body, stream: true } }) }
}

/** Reads until the first heartbeat. */
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

const lateStreams = new Map<string, SilentStream>()
const brokenStreams = new Map<string, SilentStream>()

beforeAll(async () => {
  for (const endpoint of FORMAT_PAIRS) {
    const late = await startSilentStream(endpoint, (request) => buildEvents(request, { text: ['At', ' last.'] }))
    lateStreams.set(endpoint.name, late)
    brokenStreams.set(
      endpoint.name,
      await startSilentStream({ ...endpoint, body: { ...endpoint.body, model: 'large' } }, () => [CUT]),
    )
  }
  await Promise.all([...lateStreams.values(), ...brokenStreams.values()].map(({ response }) => response))
})
afterAll(async () => {
  for (const { stage, open } of [...lateStreams.values(), ...brokenStreams.values()]) {
    open()
    await stage.close()
  }
})

function getStream(streams: ReadonlyMap<string, SilentStream>, { name }: Endpoint): SilentStream {
  const found = streams.get(name)
  if (found === undefined) throw new Error(`no stream waits on the ${name}`)
  return found
}

describe.each(FORMAT_PAIRS)('a stream on the $name whose upstream answers 200 and is silent', (endpoint) => {
  it('sends its headers and heartbeats, and then the content of the upstream', async () => {
    const late = getStream(lateStreams, endpoint)
    const response = await late.response
    expect(response.status).toBe(200)
    expect(response.headers.get('content-type')).toContain('text/event-stream')
    expect(response.headers.get('x-svc-estimated')).toBe('true')
    const reader = getReader(response)
    const before = await readHeartbeat(reader)
    expect(streamedText(before)).toBe('')
    late.open()
    const text = before + (await readRest(reader))

    expect(streamedText(text)).toBe('At last.')
    expect(text).toMatch(/^data: \[DONE\]$|^event: message_stop$/m)
    expect(late.stage.upstream.requests).toHaveLength(1)
    await late.store.waitUntilSettled()
    expect(late.store.dailyTotals().billed).toBeGreaterThan(0)
  })

  it('ends with an error event when the upstream then breaks off, without a fallback and without a bill', async () => {
    const cut = getStream(brokenStreams, endpoint)
    const reader = getReader(await cut.response)
    await readHeartbeat(reader)
    cut.open()
    const last = parseEvents(await readRest(reader)).at(-1)

    expect(last?.data).toMatchObject({ error: { type: 'upstream_error', message: expect.any(String) } })
    expect(cut.stage.upstream.requests).toHaveLength(1)
    await cut.store.waitUntilSettled()
    const { billed, actual } = cut.store.dailyTotals()
    expect(billed).toBe(0)
    expect(actual).toBeGreaterThan(0)
  })
})

describe('the official clients', () => {
  it('read a stream whose first event is a heartbeat', async () => {
    const { opened, open } = gate()
    const reply = (request: UpstreamRequest): Reply => ({
      kind: 'events',
      items: [opened, ...buildEvents(request, { text: ['At', ' last.'] })],
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
