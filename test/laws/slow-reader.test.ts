import { connect } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { afterEach, describe, expect, it } from 'vitest'
import { authorizationLine, FORMAT_PAIRS, RESPONSES_FORMAT_PAIRS } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { buildEvents, type UpstreamRequest } from '../support/upstream.ts'
import type { SseEvent } from '../../src/core/completion.ts'

const PIECE = 'x'.repeat(60_000)
const COUNT = 2_000

let stage: Stage | undefined
afterEach(() => stage?.close())

interface LargeUpstream {
  readonly stage: Stage
  /** Returns the number of pieces that the upstream has written. */
  readonly written: () => number
}

/** An upstream whose response has 120 MB, more than all buffers between it and the client. */
async function startLargeUpstream(): Promise<LargeUpstream> {
  let written = 0
  async function* pour(request: UpstreamRequest): AsyncGenerator<SseEvent> {
    const events = buildEvents(request, { text: [PIECE] })
    const at = events.findIndex((event) => event.data.includes(PIECE))
    const content = events[at]
    if (content === undefined) throw new Error('the answer has no content')
    yield* events.slice(0, at)
    for (; written < COUNT; written += 1) yield content
    yield* events.slice(at + 1)
  }
  stage = await startStage({ reply: (request) => ({ kind: 'events', items: pour(request) }) })
  return { stage, written: () => written }
}

/** Resolves when a count has grown and then not changed for many turns of the event loop. */
async function waitUntilStalled(count: () => number): Promise<void> {
  let last = -1
  for (let still = 0; still < 1000; still = count() === last && last > 0 ? still + 1 : 0) {
    last = count()
    await nextTurn()
  }
}

describe.each([...FORMAT_PAIRS, ...RESPONSES_FORMAT_PAIRS])('on the $name, a client that never reads', (endpoint) => {
  const body = JSON.stringify({ ...endpoint.body, stream: true })

  it('from its port pauses the upstream', async () => {
    const { stage: at, written } = await startLargeUpstream()
    const { hostname, port } = new URL(at.url)
    const socket = connect({ host: hostname, port: Number(port) }).pause()
    socket.on('error', () => {})
    socket.write(
      `POST ${endpoint.path} HTTP/1.1\r\nhost: x\r\n${authorizationLine(at)}content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
    )
    await waitUntilStalled(written)

    expect(written()).toBeLessThan(COUNT / 4)
    socket.destroy()
    await at.upstream.last.aborted
  })

  it('from the body of gateway.fetch pauses the upstream', async () => {
    const { stage: at, written } = await startLargeUpstream()
    const response = await at.gateway.fetch(`http://gateway${endpoint.path}`, {
      method: 'POST',
      headers: { 'x-api-key': at.secret, 'content-type': 'application/json' },
      body,
    })
    await waitUntilStalled(written)

    expect(written()).toBeLessThan(COUNT / 4)
    await response.body?.cancel()
    await at.upstream.last.aborted
  })
})
