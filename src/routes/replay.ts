import { GatewayError } from '../core/errors.ts'
import { isJsonObject, type JsonObject } from '../core/json.ts'
import { stepsOf } from '../core/steps.ts'
import type { Format, Metrics } from '../formats/format.ts'
import { parseBody } from '../formats/parse-body.ts'
import type { VirtualKey } from '../governance/virtual-key.ts'
import { readBody } from '../http/body.ts'
import { writeFrame } from '../http/sse.ts'
import { findCaller } from '../pipeline/admit.ts'
import { followBody } from '../pipeline/follow.ts'
import { baseHead } from '../pipeline/head.ts'
import type { Parts } from '../pipeline/stages.ts'
import { STREAM_HEAD } from '../pipeline/stream-body.ts'
import { parseLimits } from '../pipeline/understand.ts'
import { countEvents, skipEvents } from '../replay/events.ts'
import type { TextReader } from '../replay/recording.ts'
import type { Found, Kept } from '../replay/recordings.ts'
import type { Call, Handler } from './endpoint.ts'

/**
 * POST /v1/messages/{id}/streams: a message of the calling key as the event stream it was or would have been, from any
 * event on; one that is still being generated is followed. It costs nothing and takes no place of a limit.
 */
export function replayStream(format: Format, parts: Parts): Handler {
  return async (call) => {
    const key = await findCaller(call.request.headers, parts)
    const rate = await parts.ledger.status(key)
    const after = await readPosition(call.request, parts)
    const body = await find(call, key, { format, after, parts })
    return new Response(body, { status: 200, headers: { ...baseHead(call.id, rate), ...STREAM_HEAD } })
  }
}

interface Wanted {
  readonly format: Format
  /** How many events the caller has seen. */
  readonly after: number
  readonly parts: Parts
}

async function find(call: Call, key: VirtualKey, wanted: Wanted): Promise<ReadableStream | string> {
  const { format, after, parts } = wanted
  const id = call.variables['id'] ?? ''
  const find = (): Promise<Found | undefined> => parts.recordings.find(key.id, format.answerId?.(id) ?? id)
  const found = await find()
  if (found === undefined) throw unknownMessage()
  const { id: requestId, request } = call
  if (found === 'elsewhere') {
    const reader = keptReader(async () => {
      const later = await find()
      if (later === 'elsewhere') return undefined
      if (later === undefined || 'live' in later) throw lostMessage()
      return textAfter(later.kept, wanted)
    }, parts)
    return followBody({ reader, format, request, requestId, leave: () => {} }, parts)
  }
  if ('kept' in found) return textAfter(found.kept, wanted)
  checkPosition(after, found.live.count())
  const leave = found.audience?.join() ?? (() => {})
  return followBody({ reader: found.live.follow(after), format, request, requestId, leave }, parts)
}

/** Looks again and again for a text that is not there yet. */
function keptReader(look: () => Promise<string | undefined>, { runtime, timeouts }: Parts): TextReader {
  const until = runtime.now() + timeouts.total
  let isDone = false
  let wake: () => void = () => {}
  const done = { value: undefined, done: true } as const
  return {
    next: async () => {
      while (!isDone) {
        const text = await look()
        if (text !== undefined) {
          isDone = true
          return text === '' ? done : { value: text, done: false }
        }
        if (runtime.now() >= until) throw lostMessage()
        await new Promise<void>((resolve) => {
          wake = resolve
          runtime.after(POLL_MS, resolve)
        })
      }
      return done
    },
    return: async () => {
      isDone = true
      wake()
    },
  }
}

function textAfter(kept: Kept, { format, after, parts }: Wanted): string {
  const text = textOf(kept, format, parts)
  checkPosition(after, countEvents(text))
  return skipEvents(text, after)
}

/** The events of an answer that left as JSON are made now: few ask for them. */
function textOf(kept: Kept, format: Format, parts: Parts): string {
  if (kept.kind === 'events') return kept.text
  const { metrics } = kept
  if (!isMetrics(metrics)) throw unknownMessage()
  const completion = format.readCompletion(JSON.parse(kept.text) as JsonObject)
  const prompt = {
    native: { dialect: format.dialect, value: {} },
    model: completion.model,
    messages: [],
    settings: {},
    tools: [],
    stream: true,
  } as const
  const writer = format.stepWriter({ prompt, created: Math.floor(parts.runtime.now() / 1000) })
  const frames = stepsOf(completion).flatMap((step) => writer.write(step))
  return [...frames, ...writer.end(metrics)].map((frame, index) => writeFrame(frame, String(index + 1))).join('')
}

/** Written by `keepWhole` from a bill. */
function isMetrics(value: JsonObject): value is JsonObject & Metrics {
  return ['savingsPercent', 'originalCost', 'yourCost'].every((name) => typeof value[name] === 'number')
}

/** The later of `Last-Event-ID` and `starting_after`: a client that reconnects by itself repeats its first body. */
async function readPosition(request: Request, parts: Parts): Promise<number> {
  const header = request.headers.get('last-event-id')
  const fromHeader = header === null || header === '' ? 0 : positionOf(Number(header.trim()), 'Last-Event-ID')
  const body = await readOptionalBody(request, parts)
  const given = body['starting_after']
  return Math.max(fromHeader, given === undefined || given === null ? 0 : positionOf(given, 'starting_after'))
}

async function readOptionalBody(request: Request, parts: Parts): Promise<JsonObject> {
  const { headers } = request
  const isEmpty = headers.get('content-length') === '0' || request.body === null
  const isUnsaid = headers.get('content-length') === null && headers.get('content-type') === null
  if (isEmpty || isUnsaid) return {}
  const { limits, runtime } = parts
  const bytes = await readBody(request, { maxBytes: LONGEST_BODY, readMs: limits.bodyReadMs, after: runtime.after })
  if (bytes.byteLength === 0) return {}
  const { body } = parseBody(bytes, parseLimits(limits))
  return isJsonObject(body) ? body : {}
}

/** How often the store is asked for what another process generates. */
const POLL_MS = 500
/** The body says one number. */
const LONGEST_BODY = 64 * 1024

function positionOf(value: unknown, param: string): number {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return value
  throw new GatewayError(
    'invalid-request',
    `${param} must be the id of the last event that was received, a whole number of 0 or more.`,
    { param },
  )
}

function checkPosition(after: number, count: number): void {
  if (after <= count) return
  throw new GatewayError(
    'invalid-request',
    `There are ${count} events until now, so none can have been received with the id ${after}. Take the id of the last event that was.`,
    { param: 'starting_after' },
  )
}

/** The same words for an id that never was and for one of another key. */
function unknownMessage(): GatewayError {
  return new GatewayError(
    'not-found',
    'There is no such message for this key. Messages can be streamed again for an hour after they were answered.',
    { param: 'message_id' },
  )
}

function lostMessage(): GatewayError {
  return new GatewayError('upstream', 'The process that generated this message ended before the message did. Ask anew.')
}
