import { connect } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { authorizationLine, CHAT } from '../support/send-request.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { recordingStore } from '../support/recording-store.ts'

let stage: Stage | undefined
afterEach(() => stage?.close())

/** Requests that are sent on one connection before the first response. */
function buildPipeline({ secret }: Stage, count: number, stream: boolean): string {
  const body = JSON.stringify({ ...CHAT.body, stream })
  const head = `POST ${CHAT.path} HTTP/1.1\r\nhost: x\r\n${authorizationLine({ secret })}content-type: application/json\r\n`
  return `${head}content-length: ${body.length}\r\n\r\n${body}`.repeat(count)
}

describe.each([true, false])('pipelined requests on a connection that is closed (stream: %s)', (stream) => {
  it('are all cancelled and settled, also those that wait for earlier responses', async () => {
    const store = recordingStore()
    stage = await startStage({
      store,
      reply: () => ({ kind: 'hang' }),
      key: { name: 'k', budget_limit_cents: 100_000 },
    })
    const { upstream, url } = stage
    const { hostname, port } = new URL(url)
    const socket = connect({ host: hostname, port: Number(port) })
    socket.on('error', () => {})
    socket.write(buildPipeline(stage, 14, stream))
    await upstream.waitForRequest(14)
    socket.destroy()

    await Promise.all(upstream.requests.map((request) => request.aborted))
    await store.waitUntilSettled()
    expect(store.reservationIds).toHaveLength(14)
    expect(await store.maxHeld()).toBe(0)
  })
})

it('pipelined requests on one connection are all answered', async () => {
  stage = await startStage({ reply: ({ index }) => `Answer ${index}.` })
  const { hostname, port } = new URL(stage.url)
  const socket = connect({ host: hostname, port: Number(port) })
  socket.write(buildPipeline(stage, 5, false))
  let text = ''
  for await (const piece of socket) {
    text += String(piece)
    if (text.split('HTTP/1.1 200').length === 6 && text.endsWith('}')) break
  }
  expect(text.split('Answer ').length).toBe(6)
})
