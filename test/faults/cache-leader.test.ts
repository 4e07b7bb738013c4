import { afterEach, describe, expect, it } from 'vitest'
import type { SseEvent } from '../../src/core/completion.ts'
import type { JsonObject } from '../../src/core/json.ts'
import { sendRequest, CHAT, ENDPOINTS, MESSAGE, streamedText, type Endpoint } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { post, getReader } from '../support/read-stream.ts'
import { CUT, buildEvents, gate, HANG, type Reply, type UpstreamRequest } from '../support/upstream.ts'
import { recordingStore, type RecordingStore } from '../support/recording-store.ts'
import { waitUntil } from '../support/wait-until.ts'

/** Number of identical requests that wait for the first one. */
const FOLLOWERS = 3

interface RecordedStage extends Stage {
  readonly store: RecordingStore
}

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
})

async function startOne(reply: (request: UpstreamRequest) => Reply | Promise<Reply>): Promise<RecordedStage> {
  const store = recordingStore()
  const stage = await startStage({ reply, store, cache: {} })
  stages.push(stage)
  return { ...stage, store }
}

/** The events of a response up to its second and last word. */
function twoWords(request: UpstreamRequest): readonly SseEvent[] {
  const events = buildEvents(request, { text: ['One', ' two'] })
  return events.slice(0, events.findIndex(({ data }) => data.includes(' two')) + 1)
}

interface Reading {
  /** Reads until the text is received, then keeps reading. */
  readonly until: (text: string) => Promise<void>
  readonly cancel: () => Promise<void>
}

function streamOf(response: Response): Reading {
  const reader = getReader(response)
  let text = ''
  return {
    until: async (expected) => {
      while (!text.includes(expected)) text += new TextDecoder().decode((await reader.read()).value)
      reader.read().catch(() => {})
    },
    cancel: () => reader.cancel(),
  }
}

/** Sends the same question from other callers, and resolves when all of them wait for the leader. */
async function follow(stage: RecordedStage, endpoint: Endpoint): Promise<readonly Promise<Response>[]> {
  const followers = Array.from({ length: FOLLOWERS }, () => post(stage, endpoint.path, { body: endpoint.body }))
  await waitUntil(() => stage.store.reservationIds.length === FOLLOWERS + 1)
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve))
  expect(stage.upstream.requests).toHaveLength(1)
  return followers
}

async function expectResponded(followers: readonly Promise<Response>[]): Promise<void> {
  for (const response of await Promise.all(followers)) {
    expect(response.status).toBe(200)
    expect(await response.text()).toContain('Hello.')
  }
}

describe.each(ENDPOINTS)('concurrent identical requests on the $name endpoint', (endpoint) => {
  it('choose one new leader when the caller of the first disconnects before its answer', async () => {
    const { opened, open } = gate()
    const stage = await startOne(async ({ index }) => {
      if (index === 0) return { kind: 'hang' }
      await opened
      return 'Hello.'
    })
    const controller = new AbortController()
    const leader = post(stage, endpoint.path, { body: endpoint.body, signal: controller.signal })
    await stage.upstream.waitForRequest(1)
    const followers = await follow(stage, endpoint)
    controller.abort()
    expect((await leader).status).toBe(499)
    await stage.upstream.waitForRequest(2)
    open()

    await expectResponded(followers)
    expect(stage.upstream.requests).toHaveLength(2)
  })

  it.each(['cancels its body', 'aborts its request'])(
    'choose one new leader when the first one %s during its stream',
    async (how) => {
      const { opened, open } = gate()
      const stage = await startOne(async (request) => {
        if (request.index === 0) {
          return { kind: 'events', items: [...twoWords(request), HANG] }
        }
        await opened
        return 'Hello.'
      })
      const controller = new AbortController()
      const body = { ...endpoint.body, stream: true }
      const leader = await post(stage, endpoint.path, { body, signal: controller.signal })
      const state = streamOf(leader)
      await state.until(' two')
      const followers = await follow(stage, endpoint)
      if (how === 'cancels its body') await state.cancel()
      else controller.abort()
      await stage.upstream.waitForRequest(2)
      open()

      await expectResponded(followers)
      expect(stage.upstream.requests).toHaveLength(2)
      const { records } = await stage.gateway.audit.read({ keyId: stage.keyId })
      expect(records.map(({ outcome }) => outcome).toSorted()).toEqual(['answered', 'answered', 'answered', 'left'])
    },
  )

  it('call the upstream immediately when the stream of the first one breaks', async () => {
    const broken = gate()
    const stage = await startOne((request) =>
      request.index === 0 ? { kind: 'events', items: [...twoWords(request), broken.opened, CUT] } : 'Hello.',
    )
    const leader = sendRequest(stage, { ...endpoint.body, stream: true }, { path: endpoint.path })
    await stage.upstream.waitForRequest(1)
    const followers = await follow(stage, endpoint)
    broken.open()

    expect(streamedText((await leader).text)).toMatch(/^One/)
    await expectResponded(followers)
    expect(stage.upstream.requests).toHaveLength(1 + FOLLOWERS)
  })
})

it('a broken stream is recorded as partial, with its failure', async () => {
  for (const endpoint of [CHAT, MESSAGE]) {
    const stage = await startOne((request) => ({
      kind: 'events',
      items: [...twoWords(request), CUT],
    }))
    await sendRequest(stage, { ...endpoint.body, stream: true }, { path: endpoint.path })
    await stage.store.waitUntilSettled()
    const { records } = await stage.gateway.audit.read({ keyId: stage.keyId })
    expect(records).toMatchObject([{ status: 200, failure: 'upstream' }])
  }
})

it('a request that follows a stream gets its citations and the blocks of its format', async () => {
  const event = (type: string, fields: JsonObject): string =>
    `event: ${type}\ndata: ${JSON.stringify({ type, ...fields })}\n\n`
  const message = { id: 'msg_1', type: 'message', role: 'assistant', model: 'large', content: [] }
  const citation = { cited_text: 'a cited text' }
  const search = { type: 'server_tool_use', id: 'srvtoolu_1', name: 'web_search', input: { query: 'a search' } }
  const begun = [
    event('message_start', { message: { ...message, usage: { input_tokens: 3, output_tokens: 0 } } }),
    event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
    event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: 'One' } }),
  ]
  const rest = [
    event('content_block_delta', { index: 0, delta: { type: 'citations_delta', citation } }),
    event('content_block_stop', { index: 0 }),
    event('content_block_start', { index: 1, content_block: search }),
    event('content_block_stop', { index: 1 }),
    event('message_delta', { delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 3 } }),
    event('message_stop', {}),
  ]
  const { opened, open } = gate()
  const stage = await startOne(() => ({ kind: 'events', items: [...begun, opened, ...rest] }))
  const body = { ...MESSAGE.body, stream: true }
  const first = await post(stage, MESSAGE.path, { body })
  const second = await post(stage, MESSAGE.path, { body })
  open()

  for (const response of [first, second]) {
    const text = await response.text()
    expect(text).toContain('a cited text')
    expect(text).toContain('a search')
    expect(text).toContain('message_stop')
  }
  expect(stage.upstream.requests).toHaveLength(1)
})
