import { GatewayError } from '../../core/errors.ts'
import type { HttpRequest } from '../../core/http.ts'
import type { JsonObject } from '../../core/json.ts'
import { toStreamChunks } from '../../core/completion.ts'
import { messageId } from '../../formats/messages/response-writer.ts'
import { parseBody } from '../../formats/parse-body.ts'
import { checkJsonHeaders } from '../../http/body.ts'
import { writeSseEvent } from '../../http/sse.ts'
import { eventSinkOf, leaveOnFailure, STREAM_HEADERS } from '../../kernel/event-sink.ts'
import type { Services } from '../../kernel/services.ts'
import { countEvents, type EventSink, skipEvents, textOf as textOfChunk } from '../../streams/event-buffer.ts'
import type { LiveStream } from '../../streams/live-stream.ts'
import { hideMarginInEvents } from '../../streams/stored-margin.ts'
import type { FoundRecording, Recordings, StoredResponse } from './recordings.ts'

import { pathId, type Call, type Handler } from '../../kernel/call.ts'
import { findCaller } from '../../kernel/authenticate.ts'
import { baseHeaders } from '../../kernel/response-headers.ts'
import { messagesUpstream } from '../../formats/messages/upstream.ts'
import { messagesClient } from '../../formats/messages/client.ts'
import { parseLimits } from '../../kernel/limits.ts'

export { Recordings } from './recordings.ts'

export function replayStream(recordings: Recordings, services: Services): Handler {
  return async (call) => {
    const caller = await findCaller(call, services)
    const rate = await services.ledger.status(caller)
    const after = await readPosition(call.request, services)
    const send = await prepareReplay(call, caller.scope, { after, recordings, services })
    call.sink.begin(200, { ...baseHeaders(call.id, rate), ...STREAM_HEADERS })
    const sink = eventSinkOf({ sink: call.sink, format: messagesClient, id: call.id }, services)
    send(services.showsMargin ? sink : hideMarginInEvents(sink))
  }
}

interface ReplayRequest {
  /** Number of events that the caller has received. */
  readonly after: number
  readonly recordings: Recordings
  readonly services: Services
}

type Send = (sink: EventSink) => void

async function prepareReplay(call: Call, scope: string, replay: ReplayRequest): Promise<Send> {
  const { request } = call
  const { after, recordings, services } = replay
  const id = messageId(pathId(call))
  const findRecording = (): Promise<FoundRecording | undefined> => recordings.find(scope, id)
  const recording = await findRecording()
  if (recording === undefined) throw messageNotFoundError()
  if (recording === 'elsewhere') {
    const findStream = await recordings.createStreamSearch(scope, id, services.timeouts.idleMs)
    return (sink) => void followRemoteStream({ findRecording, findStream, request, sink }, replay)
  }
  if ('response' in recording) {
    const text = textAfter(recording.response, replay)
    return (sink) => sendText(text, sink)
  }
  // The events of a recording that is too large cannot be counted. The follower receives the error.
  if (recording.buffer.isStored) checkPosition(after, recording.buffer.count())
  const unsubscribe = recording.subscribers?.join() ?? (() => {})
  return (sink) => {
    const stopReading = recording.buffer.follow(after, leaveOnFailure(sink, unsubscribe))
    request.onDisconnect(() => {
      stopReading()
      unsubscribe()
    })
  }
}

async function followRemoteStream(
  { findRecording, findStream, request, sink }: RemoteReplay,
  replay: ReplayRequest,
): Promise<void> {
  const { runtime, timeouts } = replay.services
  const deadline = runtime.now() + timeouts.totalMs
  let isDisconnected = false
  let wake: () => void = () => {}
  let stopReading: () => void = () => sink.detach()
  request.onDisconnect(() => {
    isDisconnected = true
    stopReading()
    wake()
  })
  try {
    while (!isDisconnected) {
      const recording = await findRecording()
      if (recording !== 'elsewhere') return sendText(storedText(recording, replay), sink)
      const live = await findStream()
      if (live !== undefined && !isDisconnected) {
        stopReading = live.follow(skipReceivedEvents(replay.after, sink))
        return
      }
      if (runtime.now() >= deadline) throw messageLostError()
      await new Promise<void>((resolve) => {
        wake = resolve
        runtime.after(POLL_MS, resolve)
      })
    }
  } catch (error) {
    sink.fail(error)
  }
}

interface RemoteReplay {
  readonly findRecording: () => Promise<FoundRecording | undefined>
  readonly findStream: () => Promise<LiveStream | undefined>
  readonly request: HttpRequest
  readonly sink: EventSink
}

function skipReceivedEvents(after: number, sink: EventSink): EventSink {
  let count = 0
  return {
    ...sink,
    write: (chunk) => {
      const text = textOfChunk(chunk)
      const newEvents = skipEvents(text, Math.max(0, after - count))
      count += countEvents(text)
      return newEvents === '' || sink.write(newEvents)
    },
    end: () => {
      try {
        checkPosition(after, count)
        sink.end()
      } catch (error) {
        sink.fail(error)
      }
    },
  }
}

function storedText(recording: FoundRecording | undefined, replay: ReplayRequest): string {
  if (recording === undefined || recording === 'elsewhere' || !('response' in recording)) throw messageLostError()
  return textAfter(recording.response, replay)
}

function sendText(text: string, sink: EventSink): void {
  if (text !== '') sink.write(text)
  sink.end()
}

function textAfter(stored: StoredResponse, { after, services }: ReplayRequest): string {
  const text = textOf(stored, services)
  checkPosition(after, countEvents(text))
  return skipEvents(text, after)
}

/** Responses that were sent as JSON are converted to events on demand, because few callers need their events. */
function textOf(stored: StoredResponse, services: Services): string {
  if (stored.kind === 'events') return stored.text
  const completion = messagesUpstream.readCompletion(JSON.parse(stored.text) as JsonObject)
  const prompt = {
    native: { dialect: messagesClient.dialect, value: {} },
    model: completion.model,
    messages: [],
    settings: {},
    tools: [],
    stream: true,
  } as const
  const writer = messagesClient.createStreamWriter({
    prompt,
    createdSeconds: Math.floor(services.runtime.now() / 1000),
  })
  const events = toStreamChunks(completion).flatMap((chunk) => writer.write(chunk))
  return [...events, ...writer.end(() => stored.metrics)]
    .map((event, index) => writeSseEvent(event, String(index + 1)))
    .join('')
}

/** Returns the later position, because an automatic reconnect sends the original body again. */
async function readPosition(request: HttpRequest, services: Services): Promise<number> {
  const header = request.header('last-event-id')
  const fromHeader = header === undefined || header === '' ? 0 : parsePosition(Number(header.trim()), 'Last-Event-ID')
  const body = await readOptionalBody(request, services)
  const position = body['starting_after']
  return Math.max(
    fromHeader,
    position === undefined || position === null ? 0 : parsePosition(position, 'starting_after'),
  )
}

async function readOptionalBody(request: HttpRequest, { limits, runtime }: Services): Promise<JsonObject> {
  const length = request.header('content-length')
  const hasNoBody = length === undefined && request.header('content-type') === undefined
  if (length === '0' || hasNoBody) return {}
  checkJsonHeaders(request, MAX_BODY_BYTES)
  const bytes = await request.body({ maxBytes: MAX_BODY_BYTES, readMs: limits.bodyReadMs, after: runtime.after })
  if (bytes.byteLength === 0) return {}
  return parseBody(bytes, parseLimits(limits)).body
}

const POLL_MS = 500
const MAX_BODY_BYTES = 64 * 1024

function parsePosition(value: unknown, param: string): number {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return value
  throw new GatewayError(
    'invalid-request',
    `${param}: expected the id of the last event that you received, an integer of at least 0.`,
    { param },
  )
}

function checkPosition(after: number, count: number): void {
  if (after <= count) return
  throw new GatewayError(
    'invalid-request',
    `starting_after (or Last-Event-ID) is ${after}, but the stream has only ${count} events so far. Pass the id of the last event that you received.`,
    { param: 'starting_after' },
  )
}

/** The error is the same for an unknown id and for the id of another key's message. */
function messageNotFoundError(): GatewayError {
  return new GatewayError(
    'not-found',
    'This key has no recording of a message with this id, or the recording has expired. Send the original request again.',
    { param: 'message_id' },
  )
}

function messageLostError(): GatewayError {
  return new GatewayError(
    'upstream',
    'This message cannot be replayed, because its recording is not complete. Send the original request again.',
  )
}
