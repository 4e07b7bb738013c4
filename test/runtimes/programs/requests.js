import { createGateway, openaiCompatible } from 'sluice'
import { toNext } from 'sluice/next'

/** Handlers that test one kind of behavior each, without a model. */
const handlers = {
  async echo(request, sink) {
    sink.send(200, {}, await request.body({ maxBytes: 32 * 1024 * 1024, readMs: 60_000, after }))
  },
  json(request, sink) {
    const { method, path, query } = request
    sink.send(
      200,
      { 'content-type': 'application/json' },
      JSON.stringify([method, path, query, request.header('x-mark')]),
    )
  },
  whole(_request, sink) {
    sink.send(429, { 'retry-after': '7' }, 'café 漢')
  },
  empty(_request, sink) {
    sink.send(204, {}, '')
  },
  'bad-header'(_request, sink) {
    sink.send(200, { 'x-model': 'a\nb' }, 'body')
  },
  break(_request, sink) {
    sink.begin(200, { 'content-type': 'text/event-stream' })
    sink.write('data: one\n\n')
    after(50, () => sink.destroy())
  },
  pour(_request, sink) {
    sink.begin(200, {})
    let written = 0
    const fill = () => {
      while (written < 100) {
        written += 1
        if (!sink.write(new Uint8Array(64 * 1024)) && written < 100) return
      }
      sink.end()
    }
    sink.onDrain(fill)
    fill()
  },
}

function after(ms, callback) {
  const timer = setTimeout(callback, ms)
  return () => clearTimeout(timer)
}

/** Creates a gateway with the upstream of the test. */
export function gatewayFor(upstreamUrl) {
  return createGateway({
    providers: [openaiCompatible({ name: 'chat', baseUrl: upstreamUrl, defaultPrice: { input: 1, output: 2 } })],
    // A Worker behind miniflare notices a disconnected client at the next write.
    limits: { heartbeatMs: 100 },
  })
}

/** Routes `/behavior/*` to the handlers above, `/key` to a new key, and every other path to the gateway. */
export function handlingFor(gateway) {
  const handle = (request, sink) => {
    if (request.path === '/key') return sendKey(gateway, sink)
    if (request.path.startsWith('/behavior/')) return handlers[request.path.slice('/behavior/'.length)](request, sink)
    return gateway.handle(request, sink)
  }
  return { handle }
}

async function sendKey(gateway, sink) {
  const { value } = await gateway.keys.create({ name: 'runtime' })
  sink.send(200, {}, value)
}

/** The same as a Web-standard handler for all methods. The gateway receives all that the host passes. */
export function fetchHandlerFor(gateway) {
  const { GET } = toNext(handlingFor(gateway))
  return (request, ...context) => {
    const { pathname } = new URL(request.url)
    const isOwn = pathname === '/key' || pathname.startsWith('/behavior/')
    return isOwn ? GET(request) : gateway.fetch(request, ...context)
  }
}
