import type { IncomingHttpHeaders } from 'node:http'
import { Readable } from 'node:stream'
import type { Agent, Dispatcher } from 'undici'
import { LARGE_BODY_BYTES } from '../core/http.ts'
import type { ClosableTransport, Runtime, TransportCall, TransportHandler, TransportRequest } from '../core/ports.ts'

/** Includes TLS. */
const CONNECT_MS = 10_000
/** The upstream's Keep-Alive header takes precedence, up to 10 minutes. */
const KEEP_ALIVE_MS = 30_000
/** Per agent and origin. Further requests wait for a free connection. */
const MAX_CONNECTIONS = 1024
const MAX_HEADER_BYTES = 16 * 1024
/** Each connect timeout has its own agent. Further timeouts share the newest agent. */
const MAX_AGENTS = 8

/** Uses `dispatch`, because the global fetch uses much more CPU time. */
export function undiciTransport(): ClosableTransport {
  const agents = new Map<number, Promise<Agent>>()
  const agentFor = (connectMs: number): Promise<Agent> => {
    const known = agents.get(connectMs) ?? (agents.size < MAX_AGENTS ? undefined : [...agents.values()].at(-1))
    if (known !== undefined) return known
    const agent = createAgent(connectMs)
    agents.set(connectMs, agent)
    // A failed import must not fail later requests.
    agent.catch(() => agents.delete(connectMs))
    return agent
  }
  let ready: { readonly connectMs: number; readonly agent: Agent } | undefined
  const transport = (request: TransportRequest, handler: TransportHandler): TransportCall => {
    const connectMs = request.connectMs ?? CONNECT_MS
    const call = new UndiciCall(handler)
    if (ready?.connectMs === connectMs) {
      call.dispatch(ready.agent, request)
      return call
    }
    agentFor(connectMs).then(
      (agent) => {
        ready = { connectMs, agent }
        call.dispatch(agent, request)
      },
      (error: unknown) => call.fail(error),
    )
    return call
  }
  const close = async (): Promise<void> => {
    const open = [...agents.values()]
    agents.clear()
    ready = undefined
    await Promise.allSettled(open.map(async (agent) => (await agent).destroy()))
  }
  return Object.assign(transport, { close })
}

/** On platforms other than Node, `transport-fetch.ts` replaces this module. */
export function defaultTransport(): ClosableTransport {
  return undiciTransport()
}

async function createAgent(connectMs: number): Promise<Agent> {
  const { Agent } = await import('undici')
  return new Agent({
    connect: { timeout: connectMs },
    keepAliveTimeout: KEEP_ALIVE_MS,
    connections: MAX_CONNECTIONS,
    pipelining: 1,
    // The caller enforces all other timeouts.
    headersTimeout: 0,
    bodyTimeout: 0,
    maxHeaderSize: MAX_HEADER_BYTES,
  })
}

const SLICE_BYTES = 256 * 1024

function* slicesOf(bytes: Uint8Array): Generator<Uint8Array> {
  for (let start = 0; start < bytes.byteLength; start += SLICE_BYTES) yield bytes.subarray(start, start + SLICE_BYTES)
}

const ABORTED = new Error('The upstream call was aborted')

class UndiciCall implements TransportCall, Dispatcher.DispatchHandler {
  readonly #handler: TransportHandler
  #controller: Dispatcher.DispatchController | undefined
  #isOver = false

  constructor(handler: TransportHandler) {
    this.#handler = handler
  }

  dispatch(agent: Agent, request: TransportRequest): void {
    if (this.#isOver) return
    const { origin, path } = splitUrl(request.url)
    const { method, headers, body = null } = request
    if (body === null || body.length <= LARGE_BODY_BYTES) {
      agent.dispatch({ origin, path, method, headers, body }, this)
      return
    }
    const bytes = typeof body === 'string' ? Buffer.from(body) : body
    const headersWithLength = { ...headers, 'content-length': String(bytes.byteLength) }
    agent.dispatch({ origin, path, method, headers: headersWithLength, body: Readable.from(slicesOf(bytes)) }, this)
  }

  fail(error: unknown): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#handler.onError(error)
  }

  pause(): void {
    this.#controller?.pause()
  }

  resume(): void {
    this.#controller?.resume()
  }

  abort(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#controller?.abort(ABORTED)
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller
    // Undici cannot remove a request that is waiting for a connection.
    if (this.#isOver) controller.abort(ABORTED)
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    if (this.#isOver || status < 200) return
    this.#handler.onHead(status, (name) => {
      const value = headers[name]
      return Array.isArray(value) ? value.join(', ') : value
    })
  }

  onResponseData(_controller: Dispatcher.DispatchController, bytes: Uint8Array): void {
    // Undici reports an empty chunk after each `resume`. A reader that pauses on every chunk would never make progress.
    if (!this.#isOver && bytes.byteLength > 0) this.#handler.onData(bytes)
  }

  onResponseEnd(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#handler.onEnd()
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    this.fail(error)
  }
}

const MAX_PARSED_URLS = 64
const parsedUrls = new Map<string, Readonly<Record<'origin' | 'path', string>>>()

function splitUrl(url: string): Readonly<Record<'origin' | 'path', string>> {
  const known = parsedUrls.get(url)
  if (known !== undefined) return known
  const { origin, pathname, search } = new URL(url)
  const split = { origin, path: pathname + search }
  if (parsedUrls.size >= MAX_PARSED_URLS) parsedUrls.clear()
  parsedUrls.set(url, split)
  return split
}

const TICK_MS = 100
/** Longer delays overflow. */
const MAX_TIMER_MS = 2 ** 31 - 1

/** An element of a circular list. A removed deadline is its own neighbor. */
class Deadline {
  previous: Deadline
  next: Deadline
  readonly tick: number
  readonly callback: () => void
  readonly isBackground: boolean

  constructor(tick: number, callback: () => void, isBackground: boolean) {
    this.previous = this
    this.next = this
    this.tick = tick
    this.callback = callback
    this.isBackground = isBackground
  }
}

/** Most deadlines are canceled before they are due, so canceling does not reset the timer. */
export class TimerWheel {
  /** List heads, by tick. */
  readonly #ticks = new Map<number, Deadline>()
  #timer: NodeJS.Timeout | undefined
  #timerTick = Infinity
  /** Number of deadlines that keep the process alive. */
  #foregroundCount = 0

  add(ms: number, callback: () => void, isBackground: boolean): () => void {
    const nowMs = performance.now()
    const tick = Math.ceil((nowMs + ms) / TICK_MS)
    let head = this.#ticks.get(tick)
    if (head === undefined) this.#ticks.set(tick, (head = new Deadline(tick, noop, true)))
    const deadline = new Deadline(tick, callback, isBackground)
    deadline.previous = head.previous
    deadline.next = head
    head.previous.next = deadline
    head.previous = deadline
    if (tick < this.#timerTick) this.#arm(tick, nowMs)
    if (!isBackground && this.#foregroundCount++ === 0) this.#timer?.ref()
    return () => this.#remove(deadline)
  }

  #remove(deadline: Deadline): void {
    const { previous, next } = deadline
    if (next === deadline) return
    previous.next = next
    next.previous = previous
    deadline.previous = deadline.next = deadline
    if (!deadline.isBackground && --this.#foregroundCount === 0) this.#timer?.unref()
  }

  #arm(tick: number, nowMs: number): void {
    clearTimeout(this.#timer)
    const ms = Math.ceil(tick * TICK_MS - nowMs)
    this.#timer = setTimeout(() => this.#fire(), Math.min(Math.max(ms, 0), MAX_TIMER_MS))
    this.#timerTick = tick
    if (this.#foregroundCount === 0) this.#timer?.unref()
  }

  #fire(): void {
    this.#timerTick = Infinity
    try {
      this.#callDue(performance.now() / TICK_MS)
    } finally {
      // Also runs if a callback threw, because the remaining deadlines of the tick are still due.
      const next = this.#nextTick()
      if (next < this.#timerTick) this.#arm(next, performance.now())
    }
  }

  #callDue(currentTick: number): void {
    const due = [...this.#ticks.values()].filter(({ tick }) => tick <= currentTick).toSorted((a, b) => a.tick - b.tick)
    for (const head of due) {
      while (head.next !== head) {
        const { next } = head
        this.#remove(next)
        next.callback()
      }
    }
  }

  #nextTick(): number {
    let next = Infinity
    for (const head of this.#ticks.values()) {
      if (head.next === head) this.#ticks.delete(head.tick)
      else if (head.tick < next) next = head.tick
    }
    return next
  }
}

function noop(): void {}

const sharedTimer = new TimerWheel()

/** Shorter waits use a separate, exact timer. */
const MIN_SHARED_MS = 1_000

export const after: Runtime['after'] = (ms, callback, { isBackground = false } = {}) => {
  if (ms >= MIN_SHARED_MS) return sharedTimer.add(ms, callback, isBackground)
  const timer = setTimeout(callback, ms)
  if (isBackground) timer.unref()
  return () => clearTimeout(timer)
}
