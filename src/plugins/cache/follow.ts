import { isStorable } from './cacheability.ts'
import type { ResponseClaim } from './find-response.ts'
import type { CacheMiss } from './semantic-cache.ts'
import {
  type ResponseSource,
  type SourceReceiver,
  type StreamPart,
  type StreamReader,
  isContentOrEnd,
} from '../../core/completion.ts'
import { NO_USAGE, type Usage } from '../../core/money.ts'
import { GatewayError } from '../../core/errors.ts'
import { asObject } from '../../core/json.ts'
import type { Dialect } from '../../core/prompt.ts'
import { quotaOf } from '../../core/store.ts'
import { createReader as chatReader } from '../../formats/chat/response-reader.ts'
import { createReader as messagesReader } from '../../formats/messages/response-reader.ts'
import { createReader as responsesReader } from '../../formats/responses/response-reader.ts'
import { createSseParser, type SseParser } from '../../http/sse.ts'
import type { EventChunk, EventSink } from '../../streams/event-buffer.ts'
import { createStreamSearch, type LiveStream, publishStream, type StreamLocation } from '../../streams/live-stream.ts'
import type { Leader, SharedResponse } from './single-flight.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'
import { newResponseId } from '../../kernel/adapt-response.ts'
import { type Reserved } from '../../kernel/exchange.ts'
import type { Services } from '../../kernel/services.ts'
import type { Size } from '../../kernel/measure.ts'
import type { ResponseKeeper, PublishedResponse, ReplayPlan } from '../../kernel/lookup.ts'
import { hitBill } from './hit-bill.ts'

export function publishToOtherProcesses(
  live: PublishedResponse,
  claim: ResponseClaim,
  keyId: string,
  { runtime, detached }: Services,
): void {
  const location = locationOf(claim, keyId)
  if (location === undefined || !claim.isOwned()) return
  // The gateway's `close` waits a limited time for the last part to be written.
  detached.add({ end: () => {}, ended: publishStream(live, location, runtime) })
}

export function createClaimStreamSearch(
  claim: ResponseClaim,
  keyId: string,
  { runtime, timeouts }: Services,
): (() => Promise<LiveStream | undefined>) | undefined {
  const location = locationOf(claim, keyId)
  return location && createStreamSearch(location, { now: runtime.now, after: runtime.after, idleMs: timeouts.idleMs })
}

function locationOf({ streamStore, id }: ResponseClaim, keyId: string): StreamLocation | undefined {
  return streamStore && { store: streamStore, name: `answer:${id}`, quota: quotaOf('live-stream', keyId) }
}

const READERS: Readonly<Record<Dialect, () => StreamReader>> = {
  chat: chatReader,
  messages: messagesReader,
  responses: responsesReader,
}
const MAX_EVENT_CHARS = 16 * 1024 * 1024
const FIRST_CONTENT_TIMEOUT_MS = 30_000

interface FollowedStream {
  readonly live: LiveStream
  /** Present if other requests in this process may wait for the response to this request. */
  readonly leader?: Leader<SharedResponse, PublishedResponse>
}

export type FollowStream = typeof followStream

/**
 * Resolves with undefined for an unknown dialect, or if the stream ends or times out before the first content. Rejects
 * if the request is canceled before that.
 */
export async function followStream(
  reserved: Pick<Reserved, 'format' | 'id' | 'resolved' | 'margin' | 'cancellation'> & {
    readonly size: Pick<Size, 'prepareEstimate' | 'estimate' | 'billedCacheWrites'>
  },
  miss: Pick<CacheMiss, 'countAsHit' | 'spent'>,
  { live, leader }: FollowedStream,
  { runtime }: Pick<Services, 'runtime'>,
): Promise<{ readonly replay: ReplayPlan } | undefined> {
  const dialect = live.metadata['dialect']
  if (live.subscribers?.isOver === true || !isDialect(dialect)) return undefined
  const response = new FollowedResponse(live, READERS[dialect](), newResponseId(reserved, runtime))
  const cancel = runtime.after(FIRST_CONTENT_TIMEOUT_MS, () => response.abort())
  const { cancellation } = reserved
  const unsubscribe = cancellation.onCancel(() => response.abort())
  const hasContent = await response.hasContent
  cancel()
  unsubscribe()
  if (cancellation.isCanceled) {
    response.abort()
    throw cancellation.reason
  }
  if (!hasContent) return undefined
  await reserved.size.prepareEstimate()
  miss.countAsHit()
  const replay: ReplayPlan = {
    kind: 'replay',
    response,
    get bill() {
      return hitBill(reserved, { promptTokens: reserved.size.estimate, usage: response.usage, spent: miss.spent })
    },
    ...(leader !== undefined && { keeper: createFollowerKeeper(leader) }),
  }
  return { replay }
}

function createFollowerKeeper(leader: Leader<SharedResponse, PublishedResponse>): ResponseKeeper {
  return {
    share: leader.publish,
    finish: ({ status, completion, bill }) => {
      const response = status === 200 ? completion?.() : undefined
      if (response === undefined || bill === undefined || !isStorable(response)) {
        return leader.complete(status === 499 ? 'handed-over' : 'not-shared')
      }
      leader.complete({ shared: { completion: response, promptTokens: bill.originalTokens } })
    },
  }
}

function isDialect(dialect: unknown): dialect is Dialect {
  return typeof dialect === 'string' && Object.hasOwn(READERS, dialect)
}

class FollowedResponse implements ResponseSource, EventSink {
  readonly hasContent: Promise<boolean>
  usage: Usage | undefined

  readonly #live: LiveStream
  readonly #parser: SseParser = createSseParser(MAX_EVENT_CHARS)
  readonly #reader: StreamReader
  readonly #newId: string | undefined
  readonly #earlyParts: StreamPart[] = []
  /** Held until the stream ends, because the usage must precede them. */
  readonly #lastParts: StreamPart[] = []
  /** Undefined until the constructor has subscribed to the stream. */
  readonly #leave: (() => void) | undefined
  readonly #waitingChunks: EventChunk[] = []
  #isReading = false
  /** Called when the waiting chunks have been read or a read has failed. */
  #pendingEnd: (() => void) | undefined
  #receiver: SourceReceiver | undefined
  #failure: unknown
  #isOver = false
  #isPaused = false
  #resume: () => void = () => {}
  #resolveContent: (hasContent: boolean) => void = () => {}

  constructor(live: LiveStream, reader: StreamReader, newId: string | undefined) {
    this.#live = live
    this.#reader = reader
    this.#newId = newId
    this.hasContent = new Promise((resolve) => (this.#resolveContent = resolve))
    const leaveSubscribers = live.subscribers?.join()
    const stop = live.follow(this)
    this.#leave = () => {
      stop()
      leaveSubscribers?.()
    }
    if (this.#isOver) this.#leave()
  }

  /** Accepts one chunk per turn of the event loop, because many requests may follow one stream. */
  write(chunk: EventChunk): boolean {
    if (this.#isOver) return true
    this.#waitingChunks.push(chunk)
    if (!this.#isReading) void this.#readWaiting()
    return false
  }

  onDrain(listener: () => void): void {
    this.#resume = listener
  }

  end(): void {
    if (this.#isOver) return
    if (this.#isReading) {
      this.#pendingEnd = () => this.end()
      return
    }
    if (!this.#lastParts.some(({ type }) => type === 'done')) return this.fail(streamEndedEarly())
    const usage = asObject(this.#live.summary()['usage'])
    if (usage !== undefined) this.usage = { ...NO_USAGE, ...usage }
    if (this.usage !== undefined) this.#forward({ type: 'usage', usage: this.usage })
    for (const part of this.#lastParts) this.#forward(part)
    this.#close()
    this.#receiver?.onEnd()
  }

  fail(error: unknown): void {
    if (this.#isOver) return
    if (this.#isReading) {
      this.#pendingEnd = () => this.fail(error)
      return
    }
    this.#failure = error
    this.#close()
    this.#receiver?.onError(error)
  }

  detach(): void {}

  read(receiver: SourceReceiver): void {
    this.#receiver = receiver
    for (const part of this.#earlyParts.splice(0)) receiver.onChunk({ parts: [part] })
    if (this.#failure !== undefined) receiver.onError(this.#failure)
    else if (this.#isOver) receiver.onEnd()
  }

  pause(): void {
    this.#isPaused = true
  }

  resume(): void {
    this.#isPaused = false
    this.#resume()
  }

  complete(): void {
    this.#close()
  }

  abort(): void {
    this.#close()
  }

  async #readWaiting(): Promise<void> {
    this.#isReading = true
    await yieldToEventLoop()
    try {
      for (const chunk of this.#waitingChunks.splice(0)) this.#read(chunk)
    } catch (error) {
      this.#pendingEnd = () => this.fail(error)
    }
    this.#isReading = false
    if (this.#pendingEnd !== undefined) this.#pendingEnd()
    else if (!this.#isPaused) this.#resume()
  }

  #read(chunk: EventChunk): void {
    if (this.#isOver) return
    const bytes = typeof chunk === 'string' ? encoder.encode(chunk) : chunk
    for (const event of this.#parser.read(bytes)) for (const part of this.#reader(event).parts) this.#receive(part)
  }

  #receive(part: StreamPart): void {
    if (part.type === 'usage') this.usage = { ...NO_USAGE, ...this.usage, ...part.usage }
    else if (part.type === 'response-end' || part.type === 'done') this.#lastParts.push(part)
    else if (part.type === 'response-start') this.#forward({ ...part, id: this.#newId ?? part.id })
    else this.#forward(part)
    if (part.type.endsWith('-delta') && isContentOrEnd(part)) this.#resolveContent(true)
  }

  #forward(part: StreamPart): void {
    if (this.#receiver === undefined) this.#earlyParts.push(part)
    else this.#receiver.onChunk({ parts: [part] })
  }

  #close(): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#resolveContent(false)
    this.#leave?.()
  }
}

const encoder = new TextEncoder()

function streamEndedEarly(): GatewayError {
  return new GatewayError(
    'upstream',
    'This request shared the response of an identical request, which ended early. Send the request again.',
  )
}
