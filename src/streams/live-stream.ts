import { asObject, isJsonObject, parseJson, type JsonObject } from '../core/json.ts'
import { GatewayError } from '../core/errors.ts'
import type { Runtime } from '../core/ports.ts'
import type { Quota, Store } from '../core/store.ts'
import { textOf, type EventSink, type Recording } from './event-buffer.ts'
import { acquireLease } from './lease.ts'
import { headKey, partKey, wantedKey } from './live-names.ts'
import type { Subscribers } from './shared-work.ts'

// Exported here, because each additional dynamic import would split shared code into more chunks.
export { acquireLease }

/**
 * A follower writes `live-wanted:<name>`, for which the generating process polls. That process then holds `live:<name>`
 * as a lease, writes the events as `live:<name>:<token>:<n>`, and then replaces the lease with the number of parts.
 */
export interface StreamLocation {
  readonly store: Pick<Store, 'get' | 'set' | 'swap'>
  readonly name: string
  readonly quota: Quota
}

export interface LiveStream {
  /** Properties that a follower needs to interpret the events. */
  readonly metadata: JsonObject
  follow(sink: EventSink): () => void
  /** Returns data that is known only at the end, such as the usage. */
  summary(): JsonObject
  readonly subscribers?: Subscribers | undefined
}

const WANTED_POLL_MS = 250
/** Interval at which a follower renews `live-wanted:<name>`, in milliseconds. */
const RENEW_MS = 3_000
const WANTED_TTL_MS = 12_000
const PART_INTERVAL_MS = 40
const PART_TTL_MS = 300_000
const LEASE_MS = 10_000
const MIN_POLL_MS = 20
const MAX_POLL_MS = 200
const MAX_FAILURES = 3

type Clock = Pick<Runtime, 'now' | 'after'>
type PublishRuntime = Clock & Pick<Runtime, 'uuid'>
type FollowRuntime = Clock & { readonly idleMs: number }
type PublishedStream = LiveStream & Pick<Recording, 'ended'>

/** Publishes a stream once another process wants to follow it. Never rejects. */
export async function publishStream(
  stream: PublishedStream,
  location: StreamLocation,
  runtime: PublishRuntime,
): Promise<void> {
  let hasEnded = false
  const ended = stream.ended.then(() => void (hasEnded = true))
  try {
    while (!hasEnded) {
      const isWanted = (await location.store.get(wantedKey(location.name))) !== undefined
      if (isWanted) return await publish(stream, location, runtime)
      await Promise.race([ended, pause(WANTED_POLL_MS, runtime)])
    }
  } catch {}
}

async function publish(stream: PublishedStream, location: StreamLocation, runtime: PublishRuntime): Promise<void> {
  const { store, name, quota } = location
  const token = runtime.uuid()
  const stored = await store.get(headKey(name))
  const expected = readHead(stored)?.partCount === undefined ? undefined : stored
  const value = JSON.stringify({ token, about: stream.metadata })
  const leaseRequest = { name: headKey(name), expected, value, leaseMs: LEASE_MS, quota }
  const lease = await acquireLease({ store, ...runtime }, leaseRequest)
  if (lease === undefined) return
  // Keeps the stream running for its followers after its caller disconnects.
  const leave = stream.subscribers?.join()
  try {
    const partCount = await writeParts(stream, location, token, runtime)
    const end = JSON.stringify({ token, parts: partCount, summary: stream.summary() })
    await lease.end(partCount === undefined ? undefined : end, PART_TTL_MS)
  } catch (error) {
    await lease.end(undefined)
    throw error
  } finally {
    leave?.()
  }
}

/** Returns the number of parts, or undefined if events are missing or no process follows the stream. */
async function writeParts(
  stream: PublishedStream,
  { store, name, quota }: StreamLocation,
  token: string,
  runtime: Clock,
): Promise<number | undefined> {
  const events = collectEvents(stream)
  let partCount = 0
  let checkedAt = runtime.now()
  try {
    while (!events.isOver || events.text !== '') {
      if (events.text === '') await Promise.race([events.arrival(), pause(RENEW_MS, runtime)])
      if (runtime.now() - checkedAt > WANTED_TTL_MS) {
        if ((await store.get(wantedKey(name))) === undefined) break
        checkedAt = runtime.now()
      }
      if (events.text === '') continue
      const { text } = events
      events.text = ''
      await store.set(partKey(name, token, partCount), text, { ttlMs: PART_TTL_MS, quota })
      partCount += 1
      if (!events.isOver) await pause(PART_INTERVAL_MS, runtime)
    }
  } finally {
    events.stop()
  }
  return events.isOver && !events.isLost && events.text === '' ? partCount : undefined
}

function collectEvents(stream: LiveStream) {
  let wake: () => void = () => {}
  const arrival = (): Promise<void> => new Promise((resolve) => (wake = resolve))
  const events = { text: '', isOver: false, isLost: false, arrival, stop: () => {} }
  const end = (): void => {
    events.isOver = true
    wake()
  }
  events.stop = stream.follow({
    write: (chunk) => {
      events.text += textOf(chunk)
      wake()
      return true
    },
    onDrain: () => {},
    end,
    fail: () => {
      events.isLost = true
      end()
    },
    detach: () => {},
  })
  return events
}

interface Head {
  readonly token: string
  readonly metadata: JsonObject
  readonly partCount: number | undefined
  readonly summary: JsonObject
}

function readHead(text: string | undefined): Head | undefined {
  const head = text === undefined ? undefined : asObject(parseJson(text))
  const token = head?.['token']
  if (head === undefined || typeof token !== 'string') return undefined
  const { about, parts, summary } = head
  return {
    token,
    metadata: isJsonObject(about) ? about : {},
    partCount: typeof parts === 'number' ? parts : undefined,
    summary: isJsonObject(summary) ? summary : {},
  }
}

/** The returned function requests the stream. It resolves with undefined while no process is publishing the stream. */
export function createStreamSearch(
  location: StreamLocation,
  runtime: FollowRuntime,
): () => Promise<LiveStream | undefined> {
  const { store, name, quota } = location
  let requestedAt = -Infinity
  const request = async (): Promise<void> => {
    if (runtime.now() - requestedAt < RENEW_MS) return
    requestedAt = runtime.now()
    await store.set(wantedKey(name), '1', { ttlMs: WANTED_TTL_MS, quota })
  }
  return async () => {
    await request()
    const head = readHead(await store.get(headKey(name)))
    if (head === undefined || head.partCount !== undefined) return undefined
    return createFollowedStream(head, { location, runtime, request })
  }
}

interface FollowContext {
  readonly location: StreamLocation
  readonly runtime: FollowRuntime
  readonly request: () => Promise<void>
}

function createFollowedStream(head: Head, context: FollowContext): LiveStream {
  let summary: JsonObject = {}
  return {
    metadata: head.metadata,
    summary: () => summary,
    follow: (sink) => {
      const reader = createReader(sink)
      readParts(head.token, reader, context).then(
        (end) => {
          summary = end?.summary ?? {}
          if (end !== undefined) sink.end()
          else if (!reader.isDisconnected()) sink.fail(streamLostError())
        },
        (error: unknown) => sink.fail(GatewayError.is(error) ? error : streamLostError()),
      )
      return () => {
        reader.leave()
        sink.detach()
      }
    },
  }
}

type Reader = ReturnType<typeof createReader>

function createReader(sink: EventSink) {
  let isDisconnected = false
  let wake: () => void = () => {}
  sink.onDrain(() => wake())
  return {
    /** Returns undefined, or a promise for when a full sink accepts further text or the reader disconnects. */
    deliver: (text: string): Promise<void> | undefined =>
      sink.write(text) ? undefined : new Promise((resolve) => (wake = resolve)),
    leave: (): void => {
      isDisconnected = true
      wake()
    },
    isDisconnected: (): boolean => isDisconnected,
  }
}

/** Resolves with the final head, or with undefined if the stream is lost or the reader disconnects. */
async function readParts(token: string, reader: Reader, context: FollowContext): Promise<Head | undefined> {
  const { location, runtime, request } = context
  let part = 0
  let failures = 0
  let pollMs = MIN_POLL_MS
  let readAt = runtime.now()
  while (!reader.isDisconnected() && runtime.now() - readAt < runtime.idleMs) {
    // Renewed even if every read finds a part, because a follower can read more slowly than the process publishes.
    await request().catch(() => {})
    const result = await readPart(location, token, part).catch((error: unknown) => ({ error }))
    if ('error' in result) {
      failures += 1
      if (failures >= MAX_FAILURES) throw result.error
      await pause(MAX_POLL_MS, runtime, false)
      continue
    }
    failures = 0
    const { head, text } = result
    if (text !== undefined) {
      part += 1
      pollMs = MIN_POLL_MS
      const drained = reader.deliver(text)
      if (drained !== undefined) await renewUntil(drained, context)
      readAt = runtime.now()
      continue
    }
    if (head?.token !== token) return undefined
    if (head.partCount !== undefined) return head.partCount === part ? head : undefined
    await pause(pollMs, runtime, false)
    pollMs = Math.min(2 * pollMs, MAX_POLL_MS)
  }
  return undefined
}

/** If `live-wanted:<name>` expired, the stream would no longer be published. */
async function renewUntil(drained: Promise<void>, { request, runtime }: FollowContext): Promise<void> {
  let isDrained = false
  const done = drained.then(() => void (isDrained = true))
  while (!isDrained) {
    await request().catch(() => {})
    await Promise.race([done, pause(RENEW_MS, runtime)])
  }
}

/** Reads the head before the part. The head is updated after the last part, so no part is missed. */
async function readPart({ store, name }: StreamLocation, token: string, part: number) {
  const head = readHead(await store.get(headKey(name)))
  return { head, text: await store.get(partKey(name, token, part)) }
}

function streamLostError(): GatewayError {
  return new GatewayError(
    'upstream',
    'The stream of this answer from another process was interrupted. Retry the request.',
  )
}

/** @param isBackground If true, the pause does not keep the process alive. */
function pause(ms: number, { after }: Clock, isBackground = true): Promise<void> {
  return new Promise((resolve) => void after(ms, resolve, { isBackground }))
}
