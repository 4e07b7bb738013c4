import { createStderrLog } from '../core/failure-log.ts'
import type { HeaderRecord } from '../core/http.ts'
import { describeCause } from '../core/logged-cause.ts'
import type { NodeRequest, NodeSink } from './node-http.ts'
import { plainFailure } from './router.ts'
import type { FetchHandling } from './served.ts'
import { toWebRequest } from './web-handler.ts'

/** The part of a gateway that the Node adapters call. */
export interface NodeHandling {
  handle(request: NodeRequest, sink: NodeSink): void
}

/** Serves a Web-standard handler with node:http. Both bodies are streamed, as fast as the other side reads. */
export function toNodeHandling(served: FetchHandling): NodeHandling {
  const print = createStderrLog((line) => void process.stderr.write(`${line}\n`))
  const report: Report = (error) =>
    print({
      timestamp: new Date().toISOString(),
      service: 'sluice',
      event: 'the fetch handler failed',
      cause: describeCause(error),
    })
  return { handle: (request, sink) => void serveRequest({ served, report }, request, sink) }
}

type Report = (error: unknown) => void

interface Reported {
  readonly served: FetchHandling
  readonly report: Report
}

async function serveRequest(reported: Reported, request: NodeRequest, sink: NodeSink): Promise<void> {
  const caller = new AbortController()
  const { signal } = caller
  request.onDisconnect(() => caller.abort(new DOMException('The client disconnected.', 'AbortError')))
  const response = await respond(reported, request, signal)
  const { status, body } = response
  const headers: HeaderRecord = {}
  for (const [name, value] of response.headers) if (name !== 'set-cookie') headers[name] = value
  sink.addCookies(response.headers.getSetCookie())
  const isHead = request.method === 'HEAD' || status === 304
  if (body === null && !isHead) return sink.send(status, headers, '')
  sink.begin(status, headers)
  try {
    if (isHead) await body?.cancel()
    else if (body !== null) await pump(body.getReader(), sink, signal)
    sink.end()
  } catch {
    sink.destroy()
  }
}

/** Never rejects. */
async function respond({ served, report }: Reported, request: NodeRequest, signal: AbortSignal): Promise<Response> {
  let webRequest: Request
  try {
    webRequest = toWebRequest(request, () => request.bodyStream(), signal)
  } catch {
    // The class does not allow some methods, such as TRACE.
    return failure(400, 'The method or the URL of the request is not supported. Correct the request.')
  }
  try {
    const response: unknown = await served.fetch(webRequest)
    if (response instanceof Response) return response
    throw new TypeError('The fetch handler returned no Response.')
  } catch (error) {
    if (!signal.aborted) report(error)
    return failure(500, 'The server failed to process the request. Contact the operator.')
  }
}

function failure(status: number, message: string): Response {
  const { headers, body } = plainFailure(message)
  return new Response(body, { status, headers })
}

async function pump(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  sink: NodeSink,
  signal: AbortSignal,
): Promise<void> {
  let wake = (): void => {}
  const stop = (): void => {
    reader.cancel(signal.reason).catch(() => {})
    wake()
  }
  if (signal.aborted) return stop()
  signal.addEventListener('abort', stop, { once: true })
  sink.onDrain(() => wake())
  for (;;) {
    const { done, value } = await reader.read()
    if (done) return
    if (!sink.write(value) && !signal.aborted) await new Promise<void>((resolve) => (wake = resolve))
  }
}
