import { afterEach, describe, expect, it, vi } from 'vitest'
import type { SseEvent } from '../../src/core/answer.ts'
import type { JsonObject } from '../../src/core/json.ts'
import { ask, CHAT, FRONTS, MESSAGE, wordsOf, type Front } from '../support/ask.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { post, readerOf } from '../support/streams.ts'
import { CUT, framesOf, gate, HANG, type Reply, type UpstreamRequest } from '../support/upstream.ts'
import { watchedStore, type WatchedStore } from '../support/watched-store.ts'

/** Requests that ask the same while the first of them is being answered. */
const FOLLOWERS = 3

interface Watched extends Stage {
  readonly store: WatchedStore
}

const stages: Stage[] = []
afterEach(async () => {
  await Promise.all(stages.splice(0).map((stage) => stage.close()))
})

async function startOne(reply: (request: UpstreamRequest) => Reply | Promise<Reply>): Promise<Watched> {
  const store = watchedStore()
  const stage = await startStage({ reply, store, cache: {} })
  stages.push(stage)
  return { ...stage, store }
}

/** The events of an answer until its second and last word. */
function twoWords(request: UpstreamRequest): readonly SseEvent[] {
  const events = framesOf(request, { text: ['One', ' two'] })
  return events.slice(0, events.findIndex(({ data }) => data.includes(' two')) + 1)
}

interface Reading {
  /** Reads until the text is there, and goes on to wait for more. */
  readonly until: (text: string) => Promise<void>
  readonly cancel: () => Promise<void>
}

function streamOf(response: Response): Reading {
  const reader = readerOf(response)
  let text = ''
  return {
    until: async (expected) => {
      while (!text.includes(expected)) text += new TextDecoder().decode((await reader.read()).value)
      reader.read().catch(() => {})
    },
    cancel: () => reader.cancel(),
  }
}

/** The same question from others, as soon as all of them wait for the leader. */
async function follow(stage: Watched, front: Front): Promise<readonly Promise<Response>[]> {
  const followers = Array.from({ length: FOLLOWERS }, () => post(stage, front.path, { body: front.body }))
  await vi.waitUntil(() => stage.store.reservationIds.length === FOLLOWERS + 1)
  for (let turn = 0; turn < 20; turn += 1) await new Promise((resolve) => setImmediate(resolve))
  expect(stage.upstream.requests).toHaveLength(1)
  return followers
}

async function expectAnswered(followers: readonly Promise<Response>[]): Promise<void> {
  for (const response of await Promise.all(followers)) {
    expect(response.status).toBe(200)
    expect(await response.text()).toContain('Hello.')
  }
}

describe.each(FRONTS)('concurrent identical requests on the $name front', (front) => {
  it('choose one new leader when the caller of the first disconnects before its answer', async () => {
    const { opened, open } = gate()
    const stage = await startOne(async ({ index }) => {
      if (index === 0) return { kind: 'hang' }
      await opened
      return 'Hello.'
    })
    const controller = new AbortController()
    const leader = post(stage, front.path, { body: front.body, signal: controller.signal })
    await stage.upstream.arrival(1)
    const followers = await follow(stage, front)
    controller.abort()
    expect((await leader).status).toBe(499)
    await stage.upstream.arrival(2)
    open()

    await expectAnswered(followers)
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
      const body = { ...front.body, stream: true }
      const leader = await post(stage, front.path, { body, signal: controller.signal })
      const state = streamOf(leader)
      await state.until(' two')
      const followers = await follow(stage, front)
      if (how === 'cancels its body') await state.cancel()
      else controller.abort()
      await stage.upstream.arrival(2)
      open()

      await expectAnswered(followers)
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
    const leader = ask(stage, { ...front.body, stream: true }, { path: front.path })
    await stage.upstream.arrival(1)
    const followers = await follow(stage, front)
    broken.open()

    expect(wordsOf((await leader).text)).toMatch(/^One/)
    await expectAnswered(followers)
    expect(stage.upstream.requests).toHaveLength(1 + FOLLOWERS)
  })
})

it('a broken stream is recorded as partial, with its failure', async () => {
  for (const front of [CHAT, MESSAGE]) {
    const stage = await startOne((request) => ({
      kind: 'events',
      items: [...twoWords(request), CUT],
    }))
    await ask(stage, { ...front.body, stream: true }, { path: front.path })
    await stage.store.allSettled()
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
