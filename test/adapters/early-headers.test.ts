import express from 'express'
import fastify from 'fastify'
import { createServer } from 'node:http'
import { afterEach, expect, it, vi } from 'vitest'
import type { HttpHandling } from '../../src/core/http.ts'
import type { Runtime } from '../../src/core/ports.ts'
import { toExpress } from '../../src/express.ts'
import { toFastify } from '../../src/fastify.ts'
import { toFetch } from '../../src/http/web-handler.ts'
import { toNext } from '../../src/next.ts'
import { serve, toNodeHandler } from '../../src/node.ts'
import type * as Options from '../../src/options.ts'
import { manualRuntime } from '../support/manual-runtime.ts'
import { getReader } from '../support/read-stream.ts'
import { streamedText } from '../support/send-request.ts'
import { startStage } from '../support/stage.ts'
import { gate } from '../support/upstream.ts'
import { listen } from './listen.ts'
import type { Running } from './suite.ts'
import { webServer } from './web-server.ts'

/** Replaces the clock of the gateway. */
const clock = vi.hoisted(() => ({ runtime: undefined as Partial<Runtime> | undefined }))

vi.mock('../../src/options.ts', async (load) => {
  const original = await load<typeof Options>()
  const createRuntime: typeof original.createRuntime = (options) => ({
    ...original.createRuntime(options),
    ...clock.runtime,
  })
  return { ...original, createRuntime }
})

const ADAPTERS: Readonly<Record<string, (gateway: HttpHandling) => Promise<Running>>> = {
  serve: (gateway) => serve(gateway, { port: 0, hostname: '127.0.0.1', drainMs: 0 }),
  'serve of a fetch handler': (gateway) =>
    serve({ fetch: toFetch(gateway) }, { port: 0, hostname: '127.0.0.1', drainMs: 0 }),
  toNodeHandler: (gateway) => listen(createServer(toNodeHandler(gateway))),
  toExpress: (gateway) => listen(createServer(express().use(toExpress(gateway)))),
  'toExpress of a fetch handler': (gateway) =>
    listen(createServer(express().use(toExpress({ fetch: toFetch(gateway) })))),
  toFastify: (gateway) => listenFastify(gateway),
  'toFastify of a fetch handler': (gateway) => listenFastify({ fetch: toFetch(gateway) }),
  toNext: (gateway) => listen(webServer(toNext(gateway).POST)),
}

async function listenFastify(gateway: Parameters<typeof toFastify>[0]): Promise<Running> {
  const app = fastify()
  app.register(toFastify(gateway))
  const url = await app.listen({ port: 0, host: '127.0.0.1' })
  return {
    url,
    close: async () => {
      app.server.closeAllConnections()
      await app.close()
    },
  }
}

const closers: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const close of closers.splice(0).toReversed()) await close()
})

it.each(Object.keys(ADAPTERS))(
  '%s sends the headers of a stream, and then heartbeats, while the vendor is silent',
  async (name) => {
    const manual = manualRuntime(() => expect.unreachable())
    clock.runtime = { now: manual.now, after: manual.after }
    const { opened, open } = gate()
    const stage = await startStage({ reply: () => opened.then(() => 'At last.') })
    closers.push(() => stage.close())
    const running = await ADAPTERS[name]?.(stage.gateway)
    if (running === undefined) throw new Error(`no adapter ${name}`)
    closers.push(running.close)

    const messages = [{ role: 'user', content: 'Hello?' }]
    const pending = fetch(`${running.url}/v1/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${stage.secret}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'chat/large', stream: true, messages }),
    })
    await stage.upstream.waitForRequest(1)
    manual.advance(5000)
    const response = await pending
    expect([response.status, response.headers.get('content-type')]).toEqual([200, 'text/event-stream; charset=utf-8'])

    const reader = getReader(response)
    manual.advance(15_000)
    expect(new TextDecoder().decode((await reader.read()).value)).toBe(': ping\n\n')
    open()
    let text = ''
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      text += new TextDecoder().decode(piece.value)
    }

    expect(streamedText(text)).toBe('At last.')
  },
)
