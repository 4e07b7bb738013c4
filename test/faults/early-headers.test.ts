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
import { post } from '../support/read-stream.ts'
import { buildEvents, gate, type Reply, type UpstreamRequest } from '../support/upstream.ts'
import { recordingStore } from '../support/recording-store.ts'

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
  await expect.poll(() => stage.upstream.requests.length).toBe(1)
  expireHeaderWait()
  return { stage, store, response: await pending }
}

const TEXT = { text: ['At', ' last.'] }
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
