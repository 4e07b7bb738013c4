import { connect } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { everyNth } from '../support/full.ts'
import { cases, fc } from '../support/properties.ts'
import {
  sendRequest,
  authorizationLine,
  CHAT,
  FORMAT_PAIRS,
  parseEvents,
  expectErrorResponse,
  MESSAGE,
  streamedText,
  type Endpoint,
  type Reply as ClientReply,
} from '../support/send-request.ts'
import { startStage, type Stage, type StageOptions } from '../support/stage.ts'
import {
  CUT,
  formatEvent,
  buildEvents,
  gate,
  HANG,
  type Reply,
  type StreamItems,
  type UpstreamRequest,
} from '../support/upstream.ts'
import { recordingStore, type RecordingStore } from '../support/recording-store.ts'

interface RecordedStage extends Stage {
  readonly store: RecordingStore
}

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
})

async function startOne(
  reply: (request: UpstreamRequest) => Reply | Promise<Reply>,
  options: StageOptions = {},
): Promise<RecordedStage> {
  const store = recordingStore()
  const key = { name: 'streams', budget_limit_cents: 100_000 }
  const stage = await startStage({ reply, store, key, runtime: { random: () => 0 }, ...options })
  stages.push(stage)
  return { ...stage, store }
}

const events = (items: StreamItems): Reply => ({ kind: 'events', items })

function stream(stage: Stage, endpoint: Endpoint, more: JsonObject = {}): Promise<ClientReply> {
  return sendRequest(stage, { ...endpoint.body, ...more, stream: true }, { path: endpoint.path })
}

const isTerminal = (text: string): boolean => /^data: \[DONE\]$|^event: message_stop$/m.test(text)

/** Expects a stream that ends with an error event in the format of the endpoint, without a terminal event. */
function expectBroken(received: ClientReply, endpoint: Endpoint): void {
  expect(received.status).toBe(200)
  expect(isTerminal(received.text)).toBe(false)
  const last = parseEvents(received.text).at(-1)
  if (endpoint.path === MESSAGE.path) {
    expect(last?.event).toBe('error')
    expect(last?.data).toMatchObject({
      type: 'error',
      error: { type: expect.any(String), message: expect.any(String) },
      request_id: received.headers['x-request-id'],
    })
  } else {
    expect(last?.data).toMatchObject({ error: { type: expect.any(String), message: expect.any(String) } })
  }
  expect(
    parseEvents(received.text)
      .slice(0, -1)
      .every(({ data }) => typeof data === 'string' || data['error'] === undefined),
  ).toBe(true)
}

function expectWhole(received: ClientReply, words: string): void {
  expect(received.status).toBe(200)
  expect(isTerminal(received.text)).toBe(true)
  expect(streamedText(received.text)).toBe(words)
  expect(received.text).not.toMatch(/^data: \{"error"|^event: error/m)
}

const WORDS = ['One', ' two', ' three', ' fünf 🦊', ' end.']
const SPOKEN = WORDS.join('')
const formatStream = (request: UpstreamRequest): string =>
  buildEvents(request, { text: WORDS }).map(formatEvent).join('')

/** Splits the events of the upstream before the first one with text. */
function splitAtText(request: UpstreamRequest): {
  readonly before: readonly string[]
  readonly words: readonly string[]
} {
  const frames = buildEvents(request, { text: WORDS }).map(formatEvent)
  const first = frames.findIndex((frame) => frame.includes('"One"'))
  return { before: frames.slice(0, first), words: frames.slice(first, first + WORDS.length) }
}

describe.each(everyNth(3, FORMAT_PAIRS))('a stream on the $name', (endpoint) => {
  it('that breaks off before its first content is a 502', async () => {
    for (const count of [0, 1, 2, 3]) {
      const stage = await startOne((request) => events([...splitAtText(request).before.slice(0, count), CUT]))
      expectErrorResponse(await stream(stage, endpoint), { status: 502, type: 'upstream_error' })
      expect(await stage.store.spent('budget')).toBe(0)
      await stages.pop()?.close()
    }
  })

  it('that breaks off after any word ends with an error event and is billed for the sent part', async () => {
    for (let count = 1; count <= WORDS.length; count += 1) {
      const stage = await startOne((request) => {
        const { before, words } = splitAtText(request)
        return events([...before, ...words.slice(0, count), CUT])
      })
      const received = await stream(stage, endpoint)

      expectBroken(received, endpoint)
      expect(streamedText(received.text)).toBe(WORDS.slice(0, count).join(''))
      expect(await stage.store.spent('budget')).toBeGreaterThan(0)
      expect(stage.upstream.requests).toHaveLength(1)
      await stages.pop()?.close()
    }
  })

  it.each<[string, (request: UpstreamRequest) => StreamItems]>([
    ['ends without an end', () => []],
    ['has an event that is no JSON', () => ['data: {"choices":[{"delta":\n\n']],
    ['has an event that is a text', () => ['data: "hello"\n\n']],
    [
      'tells an error',
      ({ dialect }) => [
        dialect === 'chat'
          ? 'data: {"error":{"message":"sk-upstream-secret is out of money at http://10.0.0.1:8000","type":"server_error"}}\n\n'
          : 'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"sk-upstream-secret at http://10.0.0.1:8000"}}\n\n',
      ],
    ],
    [
      'tells that it is overloaded',
      ({ dialect }) => [
        dialect === 'chat'
          ? 'data: {"error":{"code":503,"message":"x"}}\n\n'
          : 'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
      ],
    ],
    ['has an endless line', () => [`data: ${'x'.repeat(33_600_000)}`, HANG]],
    ['has an endless event', () => [...Array.from({ length: 560 }, () => `data: ${'x'.repeat(60_000)}\n`), HANG]],
    ['has an event 100,000 levels deep', () => [`data: {"choices":${'['.repeat(100_000)}${']'.repeat(100_000)}}\n\n`]],
    ['breaks its chunks', () => []],
  ])('that %s in the middle ends with an error event', async (name, rest) => {
    const stage = await startOne((request) => {
      const { before, words } = splitAtText(request)
      if (name !== 'breaks its chunks')
        return events([...before, ...words.slice(0, 2), ...(rest(request) as Iterable<string>)])
      return {
        kind: 'by-hand',
        response: (response, socket) => {
          response.writeHead(200, { 'content-type': 'text/event-stream' })
          response.write([...before, ...words.slice(0, 2)].join(''), () => socket.write('zz\r\nnonsense\r\n'))
        },
      }
    })
    const received = await stream(stage, endpoint)

    expectBroken(received, endpoint)
    expect(streamedText(received.text)).toBe('One two')
    expect(received.text).not.toMatch(/sk-upstream|10\.0\.0\.1/)
    expect(received.text.length).toBeLessThan(10_000)
    await stage.store.waitUntilSettled()
    expect(await stage.store.maxHeld()).toBe(0)
    expect(await stage.store.spent('budget')).toBeGreaterThan(0)
  })

  it('that stalls ends with an error event of a timeout', async () => {
    const stage = await startOne(
      (request) => {
        const { before, words } = splitAtText(request)
        return events([...before, ...words.slice(0, 2), HANG])
      },
      { timeouts: { idleMs: 300 } },
    )
    const received = await stream(stage, endpoint)

    expectBroken(received, endpoint)
    expect(received.text).toContain('upstream_timeout')
    await stage.upstream.last.aborted
  })

  it.each<[string, Reply, number]>([
    ['is [DONE] alone', events(['data: [DONE]\n\n']), 502],
    ['is empty', events([]), 502],
    ['is only comments', events([': hi\n\n', ': ho\n\n']), 502],
    ['is JSON', { kind: 'json', value: { id: 'x', choices: [] } }, 502],
    ['is HTML', { kind: 'body', body: '<html>', headers: { 'content-type': 'text/html' } }, 502],
    ['is an error and status 503', { kind: 'failure', status: 503 }, 503],
    [
      'begins with an error',
      events(['event: error\ndata: {"type":"error","error":{"type":"api_error","message":"no"}}\n\n']),
      502,
    ],
  ])('that %s never begins', async (_, reply, status) => {
    const stage = await startOne(() => reply)
    expectErrorResponse(await stream(stage, endpoint), {
      status,
      type: status === 503 ? 'overloaded_error' : 'upstream_error',
    })
    expect(await stage.store.spent('budget')).toBe(0)
  })

  it.each<[string, (text: string) => StreamItems]>([
    ['with CRLF', (text) => [text.replaceAll('\n', '\r\n')]],
    ['with CR', (text) => [text.replaceAll('\n', '\r')]],
    ['with comments and pings between all events', (text) => [text.replaceAll('\n\n', '\n\n: ping\n\n:\n\n')]],
    ['with a byte order mark', (text) => [`\ufeff${text}`]],
    ['with unknown fields', (text) => [text.replaceAll('data: ', 'retry: 5\nx: y\nid: 7\ndata: ')]],
    ['without the blank after the colon', (text) => [text.replaceAll('data: ', 'data:')]],
    ['in one piece', (text) => [text]],
    ['in pieces of one byte', (text) => [...Buffer.from(text)].map((byte) => Buffer.from([byte]))],
    ['without the blank line at its end', (text) => [text.trimEnd()]],
    [
      'with empty pieces of text',
      (text) => [text.replace(/^(.*" two".*)$/m, (line) => `${line.replace('" two"', '""')}\n\n${line}`)],
    ],
    ['with further events after its end', (text) => [text, text, 'data: {"error":{"message":"late"}}\n\n']],
  ])('%s arrives unchanged', async (_, written) => {
    const stage = await startOne((request) => events(written(formatStream(request))))
    expectWhole(await stream(stage, endpoint), SPOKEN)
  })

  it('split at random positions arrives unchanged', async () => {
    let places: readonly number[] = []
    const stage = await startOne((request) => {
      const bytes = Buffer.from(formatStream(request))
      const cuts = [0, ...places.map((place) => place % bytes.length).toSorted((a, b) => a - b), bytes.length]
      return events(cuts.slice(1).map((cut, index) => bytes.subarray(cuts[index], cut)))
    })
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(100_000), { maxLength: 20 }), async (chosen) => {
        places = chosen
        expectWhole(await stream(stage, endpoint), SPOKEN)
      }),
      { numRuns: cases(15) },
    )
  })

  it('whose words and ids look like a protocol is one unchanged text', async () => {
    const evil = [
      '\n\ndata: [DONE]\n\n',
      '\r\rdata: x\r\r',
      '\u2028\u2029\u0085',
      '\n\nevent: error\ndata: {"error":{}}\n\n',
      '"}]}\n\n',
      '\0',
      ': ping\n\n',
    ]
    const stage = await startOne(() => ({ text: evil, id: 'x\n\ndata: [DONE]\n\n\r\u2028' }))
    expectWhole(await stream(stage, endpoint), evil.join(''))
  })

  it('forwards each word as soon as it arrives', async () => {
    const heard = gate()
    const stage = await startOne((request) => {
      const { before, words } = splitAtText(request)
      const frames = buildEvents(request, { text: WORDS }).map(formatEvent)
      const rest = frames.slice(before.length + 1)
      expect(words[0]).toBeDefined()
      return events([...frames.slice(0, before.length + 1), heard.opened, ...rest])
    })
    const response = await fetch(stage.url + endpoint.path, {
      method: 'POST',
      headers: { authorization: `Bearer ${stage.secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({ ...endpoint.body, stream: true }),
    })
    let text = ''
    for await (const piece of response.body!) {
      text += Buffer.from(piece).toString()
      // The upstream sends nothing more until this word is received.
      if (text.includes('One')) heard.open()
    }
    expect(isTerminal(text)).toBe(true)
  })

  it('without usage is counted by the gateway', async () => {
    const prompt = 'The fox jumps over the dog. '.repeat(200)
    const text = Array.from({ length: 300 }, () => 'word ')
    const stage = await startOne(() => ({ text, usage: null }))
    const counted = await startOne(() => ({
      text,
      usage:
        endpoint.model === CHAT.model
          ? { prompt_tokens: 1400, completion_tokens: 300, total_tokens: 1700 }
          : { input_tokens: 1400, output_tokens: 300 },
    }))
    const body = { messages: [{ role: 'user', content: prompt }], max_tokens: 1000 }
    await stream(stage, endpoint, body)
    await stream(counted, endpoint, body)

    const [ours, theirs] = [await stage.store.spent('budget'), await counted.store.spent('budget')]
    expect(ours).toBeGreaterThan(theirs * 0.7)
    expect(ours).toBeLessThan(theirs * 1.4)
  })

  it('that breaks off after 300 words is billed for 300 words and its prompt', async () => {
    const prompt = 'The fox jumps over the dog. '.repeat(200)
    const text = Array.from({ length: 300 }, () => 'word ')
    const stage = await startOne((request) => {
      const frames = buildEvents(request, { text })
      return events([...frames.slice(0, frames.findLastIndex((event) => event.data.includes('word ')) + 1), CUT])
    })
    expectBroken(
      await stream(stage, endpoint, { messages: [{ role: 'user', content: prompt }], max_tokens: 1000 }),
      endpoint,
    )

    const priced = 1.5 * (1400 + 2 * 300) * 1000
    expect(await stage.store.spent('budget')).toBeGreaterThan(priced * 0.7)
    expect(await stage.store.spent('budget')).toBeLessThan(priced * 1.4)
  })

  it('whose caller disconnects is billed for the sent part, at most the reserved amount', async () => {
    const stage = await startOne((request) => {
      const { before, words } = splitAtText(request)
      return events([...before, ...words, HANG])
    })
    const response = await fetch(stage.url + endpoint.path, {
      method: 'POST',
      headers: { authorization: `Bearer ${stage.secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({ ...endpoint.body, stream: true }),
    })
    let text = ''
    for await (const piece of response.body!) {
      text += Buffer.from(piece).toString()
      if (text.includes('end.')) break
    }
    await stage.upstream.last.aborted
    await stage.store.waitUntilSettled()

    expect(await stage.store.maxHeld()).toBe(0)
    expect(await stage.store.spent('budget')).toBeGreaterThan(0)
    expect(await stage.store.spent('budget')).toBeLessThan(1_000_000)
  })

  it('sends heartbeats while the upstream is silent, and continues', async () => {
    const beaten = gate()
    const stage = await startOne(
      (request) => {
        const { before, words } = splitAtText(request)
        const frames = buildEvents(request, { text: WORDS }).map(formatEvent)
        return events([...before, words[0] ?? '', beaten.opened, ...frames.slice(before.length + 1)])
      },
      { limits: { heartbeatMs: 20 } },
    )
    const response = await fetch(stage.url + endpoint.path, {
      method: 'POST',
      headers: { authorization: `Bearer ${stage.secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({ ...endpoint.body, stream: true }),
    })
    let text = ''
    for await (const piece of response.body!) {
      text += Buffer.from(piece).toString()
      if (/: ping|event: ping/.test(text.slice(text.indexOf('One')))) beaten.open()
    }
    expect(isTerminal(text)).toBe(true)
    expect(streamedText(text)).toBe(SPOKEN)
  })

  it('that breaks off before the first word is answered by the other provider of the key', async () => {
    const stage = await startOne(() => 'unused', {
      key: {
        name: 'two',
        provider_configs: [
          { provider: 'chat', weight: 1 },
          { provider: 'anthropic', weight: 1 },
        ],
      },
    })
    const dialects: string[] = []
    stage.upstream.reply = (request) => {
      dialects.push(request.dialect)
      const { before } = splitAtText(request)
      return request.dialect === dialects[0] ? events([...before, CUT]) : { text: SPOKEN }
    }
    expectWhole(await stream(stage, endpoint, { model: 'large' }), SPOKEN)
    expect(new Set(dialects).size).toBe(2)
  })
})

describe('a long stream', () => {
  it('of 20,000 events loses none', async () => {
    const words = Array.from({ length: 20_000 }, (_, index) => ` ${index}`)
    const stage = await startOne((request) => events([buildEvents(request, { text: words }).map(formatEvent).join('')]))

    const received = await stream(stage, CHAT)
    expect(streamedText(received.text)).toBe(words.join(''))
  })

  it('whose client does not read pauses the upstream', async () => {
    let written = 0
    const piece = formatEvent({
      data: JSON.stringify({
        id: 'x',
        choices: [{ index: 0, delta: { content: 'x'.repeat(60_000) }, finish_reason: null }],
      }),
    })
    const stage = await startOne(() =>
      events(
        (async function* () {
          for (written = 0; written < 2_000; written += 1) yield piece
        })(),
      ),
    )
    const { hostname, port } = new URL(stage.url)
    const body = JSON.stringify({ ...CHAT.body, stream: true })
    const socket = connect({ host: hostname, port: Number(port) }).pause()
    socket.write(
      `POST ${CHAT.path} HTTP/1.1\r\nhost: x\r\n${authorizationLine(stage)}content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    )

    // The upstream is paused if it writes nothing during twenty other requests.
    await stage.upstream.waitForRequest(1)
    for (let still = 0, before = -1; still < 20; still = written === before ? still + 1 : 0) {
      before = written
      await sendRequest(stage, undefined, { method: 'GET', path: '/health' })
    }
    expect(written).toBeGreaterThan(0)
    expect(written).toBeLessThan(500)

    socket.destroy()
    await stage.upstream.last.aborted
    await stage.store.waitUntilSettled()
    expect(await stage.store.maxHeld()).toBe(0)
  })
})

describe('the stored answer of a relayed chat stream', () => {
  const chunk = (content: string, finish: string | null): string =>
    `data: ${JSON.stringify({ id: 'a', model: 'large', choices: [{ index: 0, delta: { content }, finish_reason: finish }] })}`

  it('contains the last event although no blank line follows it', async () => {
    const items = [chunk('One', null), '\n\n', chunk(' two', null), '\n\n', chunk(' three', 'stop')]
    const stage = await startOne(() => events(items), { cache: {} })

    expect(streamedText((await stream(stage, CHAT)).text)).toBe('One two three')
    const repeated = await sendRequest(stage, CHAT.body, { path: CHAT.path })
    expect(repeated.headers['x-svc-cache']).toBe('HIT')
    expect(repeated.text).toContain('"One two three"')
  })
})
