import { asObject, isJsonObject, parseJson, type JsonObject } from '../core/json.ts'
import { GatewayError } from '../core/errors.ts'
import type { Runtime } from '../core/ports.ts'
import type { Quota, Store } from '../core/store.ts'
import { textOf, type EventSink, type Recording } from './event-buffer.ts'
import { takeLease, type Lease } from './lease.ts'
import type { Subscribers } from './subscribers.ts'

/**
 * Streams that one process generates and other processes follow through the store.
 *
 * A follower writes `live-wanted:<name>`. The process that generates the stream polls for it, so a stream without
 * followers costs one read per poll and no write. The events are written as `live:<name>:<token>:<n>`. `live:<name>` is
 * a lease while the stream runs, and contains the number of parts after its end.
 */
export interface StreamPlace {
  readonly values: Pick<Store, 'get' | 'set' | 'swap'>
  readonly name: string
  readonly quota: Quota
}

/** A stream of this or another process. */
export interface LiveStream {
  /** Properties that a follower needs to read the events. */
  readonly about: JsonObject
  /** Sends all events from the first. Returns a function that detaches the reader. */
  follow(sink: EventSink): () => void
  /** Returns the data that is available after the end of the stream, such as its usage. */
  summary(): JsonObject
  /** The subscribers that keep the stream running. */
  readonly subscribers?: Subscribers | undefined
}

/** Interval at which the generating process polls for followers, in milliseconds. */
const LOOK_MS = 250
/** Interval at which a follower renews its request, and the lifetime of the request, in milliseconds. */
const ASK_MS = 3_000
const ASKED_MS = 12_000
/** Minimum time between two parts, in milliseconds. */
const PART_MS = 40
/** Lifetime of a part, in milliseconds. A follower that finds no first part waits for the end of the stream. */
const PART_TTL_MS = 300_000
const LEASE_MS = 10_000
/** Delay between two polls of a follower. The delay increases while no part arrives. */
const FIRST_POLL_MS = 20
const MAX_POLL_MS = 200
const MAX_FAILURES = 3

const headKey = (name: string): string => `live:${name}`
const partKey = (name: string, token: string, part: number): string => `live:${name}:${token}:${part}`
const wantedKey = (name: string): string => `live-wanted:${name}`

type Clock = Pick<Runtime, 'now' | 'after'>

/**
 * Publishes a stream while another process requests it. Never rejects. After a failure, followers wait for the whole
 * answer.
 */
export async function publishStream(
  stream: LiveStream & { readonly ended: Recording['ended'] },
  place: StreamPlace,
  runtime: Clock & Pick<Runtime, 'uuid'>,
): Promise<void> {
  let hasEnded = false
  const ended = stream.ended.then(() => {
    hasEnded = true
  })
  try {
    while (!hasEnded) {
      if ((await place.values.get(wantedKey(place.name))) !== undefined) return await publish(stream, place, runtime)
      await Promise.race([ended, pause(LOOK_MS, runtime)])
    }
  } catch {
    // The store failed.
  }
}

/** Publishes a recording as it is written. */
export async function publishRecording(
  { live, subscribers }: { readonly live: Recording; readonly subscribers: Subscribers | undefined },
  place: StreamPlace,
  runtime: Parameters<typeof publishStream>[2],
): Promise<void> {
  const follow: LiveStream['follow'] = (sink) => live.follow(0, sink)
  await publishStream({ about: {}, ended: live.ended, follow, summary: () => ({}), subscribers }, place, runtime)
}

async function publish(
  stream: Parameters<typeof publishStream>[0],
  place: StreamPlace,
  runtime: Clock & Pick<Runtime, 'uuid'>,
): Promise<void> {
  const { values, name, quota } = place
  const token = runtime.uuid()
  const last = await values.get(headKey(name))
  const expected = readHead(last)?.parts === undefined ? undefined : last
  const text = JSON.stringify({ token, about: stream.about })
  const lease = await takeLease(
    { store: values, ...runtime },
    { name: headKey(name), expected, text, leaseMs: LEASE_MS, quota },
  )
  if (lease === undefined) return
  // The stream continues for its followers after its caller has disconnected.
  const leave = stream.subscribers?.join()
  try {
    await writeParts(stream, { place, token, lease, runtime })
  } catch (error) {
    await lease.end(undefined)
    throw error
  } finally {
    leave?.()
  }
}

interface Writing {
  readonly place: StreamPlace
  readonly token: string
  readonly lease: Lease
  readonly runtime: Clock
}

async function writeParts(
  stream: Parameters<typeof publishStream>[0],
  { place: { values, name, quota }, token, lease, runtime }: Writing,
): Promise<void> {
  let pending = ''
  let isOver = false
  let isLost = false
  let wake: () => void = () => {}
  const over = (): void => {
    isOver = true
    wake()
  }
  const stop = stream.follow({
    write: (chunk) => {
      pending += textOf(chunk)
      wake()
      return true
    },
    onDrain: () => {},
    end: over,
    fail: () => {
      isLost = true
      over()
    },
    leave: () => {},
  })
  let parts = 0
  let askedAt = runtime.now()
  try {
    while (!isOver || pending !== '') {
      if (pending === '') await Promise.race([new Promise<void>((resolve) => (wake = resolve)), pause(ASK_MS, runtime)])
      if (runtime.now() - askedAt > ASKED_MS) {
        if ((await values.get(wantedKey(name))) === undefined) break
        askedAt = runtime.now()
      }
      if (pending === '') continue
      const text = pending
      pending = ''
      await values.set(partKey(name, token, parts), text, { ttlMs: PART_TTL_MS, quota })
      parts += 1
      if (!isOver) await pause(PART_MS, runtime)
    }
  } finally {
    stop()
  }
  const end = JSON.stringify({ token, parts, summary: stream.summary() })
  await lease.end(isOver && !isLost ? end : undefined, PART_TTL_MS)
}

interface Head {
  readonly token: string
  readonly about: JsonObject
  /** Present after the end of the stream. */
  readonly parts: number | undefined
  readonly summary: JsonObject
}

function readHead(text: string | undefined): Head | undefined {
  const head = text === undefined ? undefined : asObject(parseJson(text))
  const token = head?.['token']
  if (head === undefined || typeof token !== 'string') return undefined
  const { about, parts, summary } = head
  return {
    token,
    about: isJsonObject(about) ? about : {},
    parts: typeof parts === 'number' ? parts : undefined,
    summary: isJsonObject(summary) ? summary : {},
  }
}

/** Returns a function that requests the stream of a place and returns the stream once another process publishes it. */
export function createStreamSearch(
  place: StreamPlace,
  runtime: Clock & { readonly idleMs: number },
): () => Promise<LiveStream | undefined> {
  const ask = createAsk(place, runtime)
  return async () => {
    await ask()
    const head = readHead(await place.values.get(headKey(place.name)))
    return head === undefined || head.parts !== undefined ? undefined : followed(head, { place, runtime, ask })
  }
}

function createAsk({ values, name, quota }: StreamPlace, { now }: Clock): () => Promise<void> {
  let askedAt = -Infinity
  return async () => {
    if (now() - askedAt < ASK_MS) return
    askedAt = now()
    await values.set(wantedKey(name), '1', { ttlMs: ASKED_MS, quota })
  }
}

interface Following {
  readonly place: StreamPlace
  readonly runtime: Clock & { readonly idleMs: number }
  readonly ask: () => Promise<void>
}

function followed(head: Head, following: Following): LiveStream {
  let summary: JsonObject = {}
  return {
    about: head.about,
    summary: () => summary,
    follow: (sink) => {
      const reader = createReader(sink)
      readParts(head.token, reader, following).then(
        (end) => {
          summary = end?.summary ?? {}
          if (end !== undefined) sink.end()
          else if (!reader.hasLeft()) sink.fail(lost())
        },
        (error: unknown) => sink.fail(GatewayError.is(error) ? error : lost()),
      )
      return () => {
        reader.leave()
        sink.leave()
      }
    },
  }
}

/** A sink that receives the stream part by part. */
interface Reader {
  /** Writes a part. Resolves when the sink accepts more. */
  write(text: string): Promise<void> | undefined
  leave(): void
  hasLeft(): boolean
}

function createReader(sink: EventSink): Reader {
  let hasLeft = false
  let wake: () => void = () => {}
  sink.onDrain(() => wake())
  return {
    write: (text) => (sink.write(text) ? undefined : new Promise((resolve) => (wake = resolve))),
    leave: () => {
      hasLeft = true
      wake()
    },
    hasLeft: () => hasLeft,
  }
}

/** Reads all parts. Returns the head, or undefined if the stream was lost or its reader has left. */
async function readParts(token: string, reader: Reader, { place, runtime, ask }: Following): Promise<Head | undefined> {
  let part = 0
  let failures = 0
  let pollMs = FIRST_POLL_MS
  let readAt = runtime.now()
  while (!reader.hasLeft() && runtime.now() - readAt < runtime.idleMs) {
    const found = await readPart(place, token, part).catch((error: unknown) => ({ error }))
    if ('error' in found) {
      failures += 1
      if (failures >= MAX_FAILURES) throw found.error
      await sleep(MAX_POLL_MS, runtime)
      continue
    }
    failures = 0
    const { head, text } = found
    if (text !== undefined) {
      part += 1
      pollMs = FIRST_POLL_MS
      await reader.write(text)
      readAt = runtime.now()
      continue
    }
    if (head?.token !== token || head.parts !== undefined) return head?.parts === part ? head : undefined
    await ask().catch(() => {})
    await sleep(pollMs, runtime)
    pollMs = Math.min(2 * pollMs, MAX_POLL_MS)
  }
  return undefined
}

/** Reads the head before the part, because all parts are written before the end. */
async function readPart(
  { values, name }: StreamPlace,
  token: string,
  part: number,
): Promise<{ readonly head: Head | undefined; readonly text: string | undefined }> {
  const head = readHead(await values.get(headKey(name)))
  return { head, text: await values.get(partKey(name, token, part)) }
}

function lost(): GatewayError {
  return new GatewayError(
    'upstream',
    'The process that generated this answer stopped before its end. Retry the request.',
  )
}

function sleep(ms: number, { after }: Pick<Runtime, 'after'>): Promise<void> {
  return new Promise((resolve) => void after(ms, resolve))
}

/** Like `sleep`, but does not keep the process alive. */
function pause(ms: number, { after }: Pick<Runtime, 'after'>): Promise<void> {
  return new Promise((resolve) => void after(ms, resolve, { isBackground: true }))
}
