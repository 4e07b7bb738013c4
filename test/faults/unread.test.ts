import { once } from 'node:events'
import { createServer } from 'node:http'
import { connect, type AddressInfo, type Socket } from 'node:net'
import { afterEach, describe, expect, it } from 'vitest'
import { toNodeHandler } from '../../src/node.ts'
import { DEFAULT_LIMITS } from '../../src/options.ts'
import { eventSinkOf } from '../../src/kernel/event-sink.ts'
import { authorizationLine, CHAT } from '../support/send-request.ts'
import { manualRuntime } from '../support/manual-runtime.ts'
import { timeouts } from '../support/provider-call.ts'
import { startStage, type Stage } from '../support/stage.ts'
import { post, getReader } from '../support/read-stream.ts'
import { buildEvents, gate } from '../support/upstream.ts'
import { chatFormat } from '../support/two-way-formats.ts'

let stage: Stage | undefined
afterEach(() => stage?.close())

const STREAM = { ...CHAT.body, stream: true }

describe('the events of a stream', () => {
  /** A sink that accepts one piece and is full afterwards. */
  function fullReader() {
    const calls: string[] = []
    let drained = (): void => {}
    const runtime = manualRuntime(() => ({ pause: () => {}, resume: () => {}, abort: () => {} }))
    const sink = {
      send: () => {},
      begin: () => {},
      write: () => calls.push('write') === 0,
      onDrain: (listener: () => void) => {
        drained = listener
      },
      end: () => void calls.push('end'),
      destroy: () => void calls.push('destroy'),
    }
    const services = { limits: DEFAULT_LIMITS, runtime, timeouts, log: { failure: () => {} } }
    const events = eventSinkOf({ sink, format: chatFormat, id: 'req_1' }, services)
    events.onDrain(() => {})
    return { calls, events, runtime, drain: () => drained() }
  }

  it('contain no heartbeats while the client does not read', () => {
    const { calls, events, runtime, drain } = fullReader()
    events.write('data: 1\n\n')
    runtime.advance(timeouts.totalMs - 1)
    expect(calls).toEqual(['write'])
    drain()
    runtime.advance(DEFAULT_LIMITS.heartbeatMs)
    expect(calls).toEqual(['write', 'write'])
  })

  it('end when the client does not read for timeouts.totalMs', () => {
    const { calls, events, runtime } = fullReader()
    events.write('data: 1\n\n')
    runtime.advance(timeouts.totalMs + DEFAULT_LIMITS.heartbeatMs)
    expect(calls).toEqual(['write', 'destroy'])
    expect(runtime.pending()).toBe(0)
  })
})

describe('the body of gateway.fetch', () => {
  it('ends when it is not read for timeouts.totalMs', async () => {
    let skippedMs = 0
    stage = await startStage({
      reply: (request) => ({ kind: 'events', items: buildEvents(request, { text: ['One', ' two', ' three'] }) }),
      runtime: { now: () => Date.now() + skippedMs },
      limits: { heartbeatMs: 20 },
    })
    const reader = getReader(await post(stage, CHAT.path, { body: STREAM }))
    skippedMs = timeouts.totalMs
    await expect(reader.closed).rejects.toThrow('ended before it was complete')
  })

  it('of a detached request whose caller disconnected before its headers buffers no events', async () => {
    const responded = gate()
    stage = await startStage({
      reply: async () => {
        await responded.opened
        return 'Hello.'
      },
    })
    const caller = new AbortController()
    const headers = { 'x-svc-detach': 'true' }
    const response = post(stage, CHAT.path, { body: STREAM, headers, signal: caller.signal })
    await stage.upstream.waitForRequest(1)
    caller.abort(new Error('left'))
    responded.open()
    await expect(getReader(await response).read()).rejects.toThrow('left')
  })
})

describe('a client at a port whose response is larger than what its connection holds', () => {
  async function answering(): Promise<{ readonly client: Socket; readonly connection: Socket }> {
    stage = await startStage({ reply: () => 'x'.repeat(16 * 1024 * 1024) })
    const server = createServer({ keepAliveTimeout: 5_000 }, toNodeHandler(stage.gateway))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const client = connect((server.address() as AddressInfo).port, '127.0.0.1').pause()
    client.on('error', () => {})
    const [connection] = (await once(server, 'connection')) as [Socket]
    server.close()
    const body = JSON.stringify(CHAT.body)
    const head = `POST ${CHAT.path} HTTP/1.1\r\nhost: x\r\n${authorizationLine(stage)}content-type: application/json\r\n`
    client.write(`${head}content-length: ${body.length}\r\n\r\n${body}`)
    await expect.poll(() => connection.timeout).toBe(60_000)
    return { client, connection }
  }

  it('loses its connection after a minute without progress', async () => {
    const { connection } = await answering()
    // Node emits this event after the timeout.
    connection.emit('timeout')
    expect(connection.destroyed).toBe(true)
  })

  it('keeps its connection while it continues to read', async () => {
    const { client, connection } = await answering()
    client.resume()
    // Some versions of Node add one second.
    await expect.poll(() => connection.timeout).toBeLessThanOrEqual(6_000)
    expect(connection.timeout).toBeGreaterThanOrEqual(5_000)
    client.destroy()
  })
})
