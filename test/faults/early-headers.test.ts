import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type * as Options from '../../src/options.ts'
import {
  CHAT,
  FORMAT_PAIRS,
  RESPONSES_FORMAT_PAIRS,
  streamedText,
  parseEvents,
  type Endpoint,
} from '../support/send-request.ts'
import { startStage, type Stage, type StageOptions } from '../support/stage.ts'
import { getReader, post } from '../support/read-stream.ts'
import { buildEvents, gate, type Reply, type UpstreamRequest } from '../support/upstream.ts'
import { recordingStore } from '../support/recording-store.ts'
import { waitUntil } from '../support/wait-until.ts'

/** The callbacks of the timers that expire after the maximum wait of the headers. */
const headerTimers = vi.hoisted(() => new Set<() => void>())

vi.mock('../../src/options.ts', async (load) => {
  const original = await load<typeof Options>()
  const createRuntime: typeof original.createRuntime = (options) => {
    const runtime = original.createRuntime(options)
    const after: typeof runtime.after = (ms, callback, timerOptions) => {
      // A stream whose vendor has answered waits for the remaining time.
      if (ms > 5000 || ms < 4000) return runtime.after(ms, callback, timerOptions)
      headerTimers.add(callback)
      return () => headerTimers.delete(callback)
    }
    return { ...runtime, after }
  }
  return { ...original, createRuntime }
})

beforeEach(() => headerTimers.clear())

const stages: Stage[] = []
afterEach(async () => {
  for (const stage of stages.splice(0)) await stage.close()
})

/** As after five seconds. */
function expireHeaderWait(): void {
  for (const callback of headerTimers) {
    headerTimers.delete(callback)
    callback()
  }
}

const BOTH = [
  { provider: 'chat', weight: 1 },
  { provider: 'anthropic', weight: 1 },
]

interface SilentStage {
  readonly stage: Stage
  readonly store: ReturnType<typeof recordingStore>
  readonly response: Response
}

/** Sends a stream request whose vendor is silent, and waits for its headers. */
async function startSilent(
  { path, body }: Endpoint,
  reply: (request: UpstreamRequest) => Promise<Reply>,
  options: StageOptions = {},
  headers: Readonly<Record<string, string>> = {},
): Promise<SilentStage> {
  const store = recordingStore()
  const key = { name: 'both', budget_limit_cents: 1000, provider_configs: BOTH }
  const stage = await startStage({ store, reply, key, limits: { heartbeatMs: 20 }, ...options })
  stages.push(stage)
  const pending = post(stage, path, { body: { ...body, stream: true }, headers })
  await stage.upstream.waitForRequest(1)
  expireHeaderWait()
  return { stage, store, response: await pending }
}

const TEXT = { text: ['At', ' last.'] }
/** Removes the heartbeats, whose number depends on time. */
const withoutPings = (text: string): string => text.replace(/: ping\n\n|event: ping\ndata: .*\n\n/g, '')
const whole = (request: UpstreamRequest): Reply => ({ kind: 'events', items: buildEvents(request, TEXT) })

describe.each([...FORMAT_PAIRS, ...RESPONSES_FORMAT_PAIRS])(
  'a stream on the $name whose upstream is silent',
  (endpoint) => {
    it('begins before the upstream responds, and then has the content of the upstream and its bill', async () => {
      const { opened, open } = gate()
      const { stage, store, response } = await startSilent(endpoint, async (request) => {
        await opened
        return whole(request)
      })
      expect(response.status).toBe(200)
      expect(response.headers.get('content-type')).toContain('text/event-stream')
      expect(response.headers.get('x-svc-estimated')).toBe('true')
      expect(response.headers.get('x-svc-billed-amount')).toMatch(/[1-9]/)
      open()
      const text = await response.text()

      expect(text).toContain('At')
      expect(text).toContain(' last.')
      expect(text).toMatch(/^data: \[DONE\]$|^event: message_stop$|^event: response.completed$/m)
      expect(stage.upstream.requests).toHaveLength(1)
      await store.waitUntilSettled()
      expect(store.dailyTotals().billed).toBeGreaterThan(0)
    })

    it('ends with an error event if the upstream then rejects the request, without a bill', async () => {
      const { opened, open } = gate()
      const { store, response } = await startSilent(endpoint, async () => {
        await opened
        return { kind: 'failure', status: 400, failure: { message: 'No such thing.' } }
      })
      open()
      const last = parseEvents(await response.text()).at(-1)

      expect(response.status).toBe(200)
      expect(JSON.stringify(last?.data)).toContain('No such thing.')
      await store.waitUntilSettled()
      expect(store.dailyTotals().billed).toBe(0)
    })
  },
)

it.each([
  ['message endpoint, chat upstream', { top_k: 5 }, 'top_k'],
  ['chat endpoint, message upstream', { seed: 1 }, 'seed'],
])(
  'a stream that begins before its vendor responds names the fields that it drops: %s',
  async (name, fields, ignored) => {
    const endpoint = FORMAT_PAIRS.find((pair) => pair.name === name) ?? CHAT
    const { opened, open } = gate()
    const { response } = await startSilent({ ...endpoint, body: { ...endpoint.body, ...fields } }, async (request) => {
      await opened
      return whole(request)
    })
    open()

    expect(response.headers.get('x-svc-ignored')).toBe(ignored)
    expect(await response.text()).toContain('At')
  },
)

it('a stream that has begun still gets its content from another vendor if the first one fails before its content', async () => {
  const { opened, open } = gate()
  const endpoint = { ...CHAT, body: { ...CHAT.body, model: 'large' } }
  const { stage, response } = await startSilent(endpoint, async (request) => {
    await opened
    return request.index === 0 ? { kind: 'failure', status: 401 } : whole(request)
  })
  open()

  expect(streamedText(await response.text())).toBe('At last.')
  expect(stage.upstream.requests).toHaveLength(2)
})

it('a stream that has begun is retried, and sends heartbeats until then', async () => {
  const { opened, open } = gate()
  const { stage, response } = await startSilent(CHAT, async (request) => {
    await opened
    return request.index === 0 ? { kind: 'failure', status: 500 } : whole(request)
  })
  const reader = response.body?.getReader()
  const first = await reader?.read()
  expect(new TextDecoder().decode(first?.value)).toBe(': ping\n\n')
  open()
  let text = ''
  for (let piece = await reader?.read(); piece?.done === false; piece = await reader?.read()) {
    text += new TextDecoder().decode(piece.value)
  }

  expect(streamedText(text)).toBe('At last.')
  expect(stage.upstream.requests).toHaveLength(2)
})

it('a caller that leaves a begun stream ends the call to the upstream and pays for the prompt', async () => {
  const { opened, open } = gate()
  const { stage, store, response } = await startSilent(CHAT, async (request) => {
    await opened
    return whole(request)
  })
  await response.body?.cancel()
  await store.waitUntilSettled()
  open()

  expect(store.dailyTotals().billed).toBeGreaterThan(0)
  expect((await stage.gateway.keys.usage(stage.keyId)).tokens.completion).toBe(0)
})

it('a retry with the same Idempotency-Key follows the begun stream, and repeats it later without another call', async () => {
  const { opened, open } = gate()
  const headers = { 'idempotency-key': 'one' }
  const reply = async (request: UpstreamRequest): Promise<Reply> => {
    await opened
    return whole(request)
  }
  const { stage, response } = await startSilent(CHAT, reply, {}, headers)
  const again = await post(stage, CHAT.path, { body: { ...CHAT.body, stream: true }, headers })
  open()
  const texts = await Promise.all([response.text(), again.text()])
  const later = await post(stage, CHAT.path, { body: { ...CHAT.body, stream: true }, headers })

  expect([...texts, await later.text()].map(streamedText)).toEqual(['At last.', 'At last.', 'At last.'])
  expect(stage.upstream.requests).toHaveLength(1)
})

describe('a retry with the same Idempotency-Key in another process, while the vendor of the first request is silent,', () => {
  const headers = { 'idempotency-key': 'one' }

  /** Sends the retry to another gateway with the same store, and waits until its headers must leave. */
  async function startRetry(
    first: Omit<SilentStage, 'response'>,
    { path, body }: Endpoint,
    reply: (request: UpstreamRequest) => Reply,
  ) {
    const process = await startStage({ store: first.store, reply, limits: { heartbeatMs: 20 } })
    stages.push(process)
    const pending = post({ ...process, secret: first.stage.secret }, path, { body: { ...body, stream: true }, headers })
    await waitUntil(() => headerTimers.size === 1)
    expireHeaderWait()
    return { process, response: await pending }
  }

  it.each([...FORMAT_PAIRS, ...RESPONSES_FORMAT_PAIRS])(
    'begins as early, and then has the content of the first one: $name',
    async (endpoint) => {
      const { opened, open } = gate()
      const first = await startSilent(endpoint, (request) => opened.then(() => whole(request)), {}, headers)
      const { process, response } = await startRetry(first, endpoint, whole)

      expect(response.status).toBe(200)
      expect(response.headers.get('content-type')).toContain('text/event-stream')
      const reader = getReader(response)
      expect(new TextDecoder().decode((await reader.read()).value)).toMatch(/ping/)
      open()
      const [text, repeated] = await Promise.all([first.response.text(), readRest(reader)])

      expect(withoutPings(repeated)).toBe(withoutPings(text))
      expect(text).toContain(' last.')
      expect(process.upstream.requests).toHaveLength(0)
      await first.store.waitUntilSettled()
      expect(first.store.settlements).toHaveLength(1)
    },
  )

  it('calls the vendor itself if the first one fails', async () => {
    const { opened, open } = gate()
    const first = await startSilent(CHAT, () => opened.then(() => ({ kind: 'failure', status: 503 })), {}, headers)
    const { process, response } = await startRetry(first, CHAT, whole)
    open()

    expect(streamedText(await response.text())).toBe('At last.')
    expect(process.upstream.requests).toHaveLength(1)
  })

  it('ends with the error of the first one if the vendor rejects its request', async () => {
    const { opened, open } = gate()
    const store = recordingStore()
    const reply = (): Promise<Reply> =>
      opened.then(() => ({ kind: 'failure', status: 400, failure: { message: 'No such thing.' } }))
    const stage = await startStage({ store, reply })
    stages.push(stage)
    const pending = post(stage, CHAT.path, { body: { ...CHAT.body, stream: true }, headers })
    await stage.upstream.waitForRequest(1)
    // The error becomes a response, because no headers have left.
    headerTimers.clear()
    const { process, response } = await startRetry({ stage, store }, CHAT, whole)
    open()

    expect((await pending).status).toBe(400)
    expect(JSON.stringify(parseEvents(await response.text()).at(-1)?.data)).toContain('No such thing.')
    expect(process.upstream.requests).toHaveLength(0)
  })

  it('ends with an error event if its own call is rejected after the first one has failed', async () => {
    const { opened, open } = gate()
    const reply = async (): Promise<Reply> => {
      await opened
      return { kind: 'failure', status: 503 }
    }
    const first = await startSilent(CHAT, reply, {}, headers)
    const { response } = await startRetry(first, CHAT, () => {
      return { kind: 'failure', status: 400, failure: { message: 'No such thing.' } }
    })
    open()

    expect(JSON.stringify(parseEvents(await response.text()).at(-1)?.data)).toContain('No such thing.')
  })
})

it('a detached stream that has begun finishes after its caller leaves', async () => {
  const { opened, open } = gate()
  const reply = async (request: UpstreamRequest): Promise<Reply> => {
    await opened
    return whole(request)
  }
  const { stage, store, response } = await startSilent(CHAT, reply, {}, { 'x-svc-detach': 'true' })
  await response.body?.cancel()
  open()
  await store.waitUntilSettled()

  expect((await stage.gateway.keys.usage(stage.keyId)).tokens.completion).toBeGreaterThan(0)
})

describe('an identical stream request, while the vendor of the first one is silent,', () => {
  /** Sends a request that follows the silent one, and waits until its headers must leave. */
  async function startFollower({ stage, store }: SilentStage, { path, body }: Endpoint, options = {}) {
    const pending = post(stage, path, { body: { ...body, stream: true }, ...options })
    await waitUntil(() => store.reservationIds.length === 2 && headerTimers.size === 1)
    expireHeaderWait()
    return pending
  }

  const answering = (opened: Promise<unknown>) => async (request: UpstreamRequest) => {
    await opened
    return whole(request)
  }

  it.each([...FORMAT_PAIRS, ...RESPONSES_FORMAT_PAIRS])(
    'begins as early, and is a cache hit: $name',
    async (endpoint) => {
      const { opened, open } = gate()
      const first = await startSilent(endpoint, answering(opened), { cache: {} })
      const response = await startFollower(first, endpoint)

      expect(response.status).toBe(200)
      expect(response.headers.get('content-type')).toContain('text/event-stream')
      const reader = getReader(response)
      const heartbeat = new TextDecoder().decode((await reader.read()).value)
      expect(heartbeat).toMatch(/ping/)
      open()
      const [text, followed] = await Promise.all([first.response.text(), readRest(reader)])

      for (const content of [text, followed]) {
        expect(content).toContain('At')
        expect(content).toContain(' last.')
        expect(content).toMatch(/^data: \[DONE\]$|^event: message_stop$|^event: response.completed$/m)
      }
      expect(first.stage.upstream.requests).toHaveLength(1)
      await first.store.waitUntilSettled()
      expect(await billsOf(first)).toEqual([
        ['answered', 0, 'free'],
        ['answered', expect.any(Number), 'billed'],
      ])
    },
  )

  it('calls the vendor itself if the first one fails', async () => {
    const { opened, open } = gate()
    const first = await startSilent(
      CHAT,
      async (request) => {
        if (request.index > 0) return whole(request)
        await opened
        return { kind: 'failure', status: 400, failure: { message: 'No such thing.' } }
      },
      { cache: {} },
    )
    const response = await startFollower(first, CHAT)
    open()
    const [failed, text] = await Promise.all([first.response.text(), response.text()])

    expect(failed).toContain('No such thing.')
    expect(streamedText(text)).toBe('At last.')
    await first.store.waitUntilSettled()
    expect(await billsOf(first)).toEqual([
      ['answered', 0, 'free'],
      ['answered', expect.any(Number), 'billed'],
    ])
  })

  it('becomes the first one if the caller of the first one leaves', async () => {
    const { opened, open } = gate()
    const first = await startSilent(CHAT, answering(opened), { cache: {} })
    const response = await startFollower(first, CHAT)
    await first.response.body?.cancel()
    await first.stage.upstream.waitForRequest(2)
    const third = post(first.stage, CHAT.path, { body: { ...CHAT.body, stream: true } })
    open()

    expect(streamedText(await response.text())).toBe('At last.')
    expect(streamedText(await (await third).text())).toBe('At last.')
    expect(first.stage.upstream.requests).toHaveLength(2)
  })

  it('ends with an error event if its own call fails', async () => {
    const { opened, open } = gate()
    const first = await startSilent(
      CHAT,
      async () => {
        await opened
        return { kind: 'failure', status: 400, failure: { message: 'No such thing.' } }
      },
      { cache: {} },
    )
    const response = await startFollower(first, CHAT)
    open()
    const texts = await Promise.all([first.response.text(), response.text()])

    for (const text of texts) expect(JSON.stringify(parseEvents(text).at(-1)?.data)).toContain('No such thing.')
    await first.store.waitUntilSettled()
    expect(first.store.dailyTotals().billed).toBe(0)
    expect(first.store.settlements).toHaveLength(2)
  })

  it('pays nothing if its caller leaves before the content, and the first one continues', async () => {
    const { opened, open } = gate()
    const first = await startSilent(CHAT, answering(opened), { cache: {} })
    const response = await startFollower(first, CHAT)
    await response.body?.cancel()
    await waitUntil(() => first.store.settlements.length === 1)
    expect(first.store.dailyTotals().billed).toBe(0)
    open()

    expect(streamedText(await first.response.text())).toBe('At last.')
    await first.store.waitUntilSettled()
    expect(first.store.settlements).toHaveLength(2)
  })

  it('begins as early if it repeats an Idempotency-Key', async () => {
    const { opened, open } = gate()
    const store = recordingStore()
    const stage = await startStage({ store, reply: answering(opened), limits: { heartbeatMs: 20 } })
    stages.push(stage)
    const options = { body: { ...CHAT.body, stream: true }, headers: { 'idempotency-key': 'one' } }
    const pending = [post(stage, CHAT.path, options), post(stage, CHAT.path, options)]
    await stage.upstream.waitForRequest(1)
    expireHeaderWait()
    const responses = await Promise.all(pending)
    open()

    expect(await Promise.all(responses.map(async (response) => streamedText(await response.text())))).toEqual([
      'At last.',
      'At last.',
    ])
    expect(stage.upstream.requests).toHaveLength(1)
  })
})

async function billsOf({ stage }: SilentStage) {
  const { records } = await stage.gateway.audit.read({ keyId: stage.keyId })
  const sorted = records.toSorted((a, b) => a.costUsd - b.costUsd)
  return sorted.map(({ outcome, tokensUsed, costUsd }) => [outcome, tokensUsed, costUsd > 0 ? 'billed' : 'free'])
}

async function readRest(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<string> {
  let text = ''
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    text += new TextDecoder().decode(piece.value)
  }
  return text
}
