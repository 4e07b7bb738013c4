import { asObject, isJsonObject, type JsonObject, parseJson } from '../core/json.ts'
import type { Runtime } from '../core/ports.ts'
import { quotaOf, type Store } from '../core/store.ts'
import type { LiveStream } from './live-stream.ts'
import { type Lease, type Subscribers, acquireLease } from './lifetime.ts'
import { type CapacityShare, EventBuffer, type Recording } from './event-buffer.ts'

export type StoredAnswer =
  /** The events as sent. */
  | { readonly kind: 'events'; readonly text: string }
  /** An answer sent as one JSON string, and its metrics. Its events are created on demand. */
  | { readonly kind: 'whole'; readonly text: string; readonly metrics: JsonObject }

export type FoundRecording = Live | { readonly answer: StoredAnswer } | 'elsewhere'

export interface Live {
  readonly live: Recording
  readonly subscribers: Subscribers | undefined
}

export interface RecordingName {
  readonly owner: string
  readonly id: string
  readonly subscribers?: Subscribers
  /** True if other processes can follow the recording, because its caller may reconnect to any of them. */
  readonly isDetached?: boolean
}

/** Answers that can be streamed again, by owner (key id) and id. */
export interface Recordings {
  readonly isEnabled: boolean
  /**
   * Returns a buffer for a stream. If recordings are disabled or the capacity is exhausted, only the caller can read
   * the stream.
   */
  open(options: { readonly owner: string; readonly isStored: boolean }): EventBuffer
  /** Registers a stream under a name, and stores it at its end. Replaces an older stream with the same name. */
  name(recording: Recording, name: RecordingName): void
  /** Stores an answer that was not streamed. Returns immediately. */
  keep(answer: StoredAnswer, owner: string, id: string): void
  /** Resolves with a recording, or with `elsewhere` if another process is generating it. Rejects if the store fails. */
  find(owner: string, id: string): Promise<FoundRecording | undefined>
  /** Returns a function that looks for the stream of a recording that another process is generating. */
  search(owner: string, id: string, idleMs: number): Promise<() => Promise<LiveStream | undefined>>
  /** Resolves when the writes of all ended recordings have settled. */
  flush(): Promise<void>
  /** Recordings in progress, and their total size in bytes. */
  readonly size: { readonly entries: number; readonly bytes: number }
}

export interface RecordingsOptions extends Partial<CapacityLimits>, Pick<Runtime, 'now' | 'after' | 'uuid'> {
  readonly store: Store
  readonly isEnabled?: boolean
  /** How long a finished answer is retained, in seconds. @default 3600 */
  readonly retentionSeconds?: number
}

const MIB = 1024 * 1024
const DEFAULT_LIMITS: CapacityLimits = { entries: 10_000, bytes: 64 * MIB, maxBytesPerStream: 8 * MIB }
const HOUR_SECONDS = 3600
/** How long a recording survives the death of its process, in milliseconds. */
const LEASE_MS = 30_000
const LIVE = 'live'
/** Matches the ids of all formats. Answers with other ids are not stored. */
const SAFE_ID = /^[\x21-\x7e]{1,200}$/

export function createRecordings(options: RecordingsOptions): Recordings {
  const { store, after, uuid, isEnabled = true, retentionSeconds = HOUR_SECONDS, ...limits } = options
  const capacity = createRecordingCapacity({ ...DEFAULT_LIMITS, ...limits })
  const maxBytes = limits.maxBytesPerStream ?? DEFAULT_LIMITS.maxBytesPerStream
  const live = new Map<string, Live>()
  const saving = new Map<string, Promise<unknown>>()

  /**
   * Tracks a write, so that reads of the same name wait for it. Ignores failures, because the answer has already been
   * sent.
   */
  async function save(name: string, work: Promise<unknown>): Promise<void> {
    const saved = work.catch(() => {})
    saving.set(name, saved)
    await saved
    if (saving.get(name) === saved) saving.delete(name)
  }

  function write(answer: StoredAnswer): string | undefined {
    const text = writeStored(answer)
    return 2 * text.length > maxBytes ? undefined : text
  }

  const put = (owner: string, id: string, text: string): Promise<void> =>
    store.set(nameOf(owner, id), text, { ttlMs: retentionSeconds * 1000, quota: quotaOf('recording', owner) })

  async function keepWhenEnded(
    recorded: Live,
    { owner, id }: RecordingName,
    leased: Promise<Lease | undefined>,
  ): Promise<void> {
    const name = nameOf(owner, id)
    const { text } = await recorded.live.ended
    const lease = await leased
    const stored = text === undefined ? undefined : write({ kind: 'events', text })
    if (lease !== undefined) await save(name, lease.end(stored, retentionSeconds * 1000))
    else if (stored !== undefined && live.get(name) === recorded) await save(name, put(owner, id, stored))
    if (live.get(name) === recorded) live.delete(name)
  }

  async function takeName({ owner, id }: RecordingName): Promise<Lease | undefined> {
    const text = `${JSON.stringify({ kind: LIVE, token: uuid() })}\n`
    const lease = { name: nameOf(owner, id), expected: undefined, text, leaseMs: LEASE_MS }
    return acquireLease({ store, after }, { ...lease, quota: quotaOf('recording', owner) }).catch(() => undefined)
  }

  async function publish({ live: recording, subscribers }: Live, name: string, owner: string): Promise<void> {
    const { publishStream } = await import('./live-stream.ts')
    const follow: LiveStream['follow'] = (sink) => recording.follow(0, sink)
    const stream = { about: {}, ended: recording.ended, follow, summary: () => ({}), subscribers }
    return publishStream(stream, { values: store, name, quota: quotaOf('live-stream', owner) }, options)
  }

  return {
    isEnabled,
    open: ({ owner, isStored }) => new EventBuffer(isStored ? capacity.reserve(owner) : undefined),
    name: (recording, recordingName) => {
      const { owner, id, subscribers, isDetached = false } = recordingName
      if (!isEnabled || !SAFE_ID.test(id)) return
      const name = nameOf(owner, id)
      if (live.get(name)?.live === recording) return
      const recorded = { live: recording, subscribers }
      live.set(name, recorded)
      void keepWhenEnded(recorded, recordingName, isDetached ? takeName(recordingName) : Promise.resolve(undefined))
      if (isDetached) void save(`${name} live`, publish(recorded, name, owner))
    },
    keep: (answer, owner, id) => {
      const text = isEnabled && SAFE_ID.test(id) ? write(answer) : undefined
      if (text !== undefined) void save(nameOf(owner, id), put(owner, id, text))
    },
    find: async (owner, id) => {
      if (!SAFE_ID.test(id)) return undefined
      const name = nameOf(owner, id)
      const recorded = live.get(name)
      if (recorded !== undefined) return recorded
      await saving.get(name)
      return readStored(await store.get(name))
    },
    search: async (owner, id, idleMs) => {
      const { createStreamSearch } = await import('./live-stream.ts')
      const location = { values: store, name: nameOf(owner, id), quota: quotaOf('live-stream', owner) }
      return createStreamSearch(location, { ...options, idleMs })
    },
    flush: async () => {
      while (saving.size > 0) await Promise.all(saving.values())
    },
    get size() {
      return { entries: capacity.entries, bytes: capacity.bytes }
    },
  }
}

/** Encodes the id, so that different owners cannot have the same key. */
function nameOf(owner: string, id: string): string {
  return `recording:${owner}:${encodeURIComponent(id)}`
}

/** One line of JSON, followed by the raw text, because serializing a long string as JSON is slow. */
function writeStored(answer: StoredAnswer): string {
  const head = answer.kind === 'events' ? { kind: answer.kind } : { kind: answer.kind, metrics: answer.metrics }
  return `${JSON.stringify(head)}\n${answer.text}`
}

function readStored(value: string | undefined): FoundRecording | undefined {
  if (value === undefined) return undefined
  const end = value.indexOf('\n')
  const head = asObject(parseJson(value.slice(0, end)))
  const text = value.slice(end + 1)
  const metrics = head?.['metrics']
  if (head?.['kind'] === LIVE) return 'elsewhere'
  if (head?.['kind'] === 'events') return { answer: { kind: 'events', text } }
  return head?.['kind'] === 'whole' && isJsonObject(metrics) ? { answer: { kind: 'whole', text, metrics } } : undefined
}

/** Limits on the recordings in progress. Each UTF-16 code unit counts as two bytes. */
export interface CapacityLimits {
  readonly entries: number
  readonly bytes: number
  /** Maximum size of one recording, in bytes. */
  readonly maxBytesPerStream: number
}

/**
 * Capacity shared by all recordings in progress. An owner may use at most as much as remains free, so that no owner can
 * block the others. The first recording of an owner is exempt.
 */
interface RecordingCapacity {
  /** Reserves capacity for one recording. Returns undefined if the owner's capacity is exhausted. */
  reserve(owner: string): CapacityShare | undefined
  readonly entries: number
  readonly bytes: number
}

interface OwnerUsage {
  entries: number
  bytes: number
}

export function createRecordingCapacity(limits: CapacityLimits): RecordingCapacity {
  const owners = new Map<string, OwnerUsage>()
  let entries = 0
  let bytes = 0

  function reserve(owner: string): CapacityShare | undefined {
    const own = owners.get(owner) ?? { entries: 0, bytes: 0 }
    const free = limits.entries - entries - 1
    if (free < 0 || (own.entries > 0 && own.entries + 1 > free)) return undefined
    owners.set(owner, own)
    own.entries += 1
    entries += 1
    let ownBytes = 0
    let isReleased = false

    function fits(added: number): boolean {
      const free = limits.bytes - bytes - added
      if (free < 0 || ownBytes + added > limits.maxBytesPerStream) return false
      return own.entries === 1 || own.bytes + added <= free
    }

    return {
      reserve: (added) => {
        if (isReleased || !fits(added)) return false
        ownBytes += added
        own.bytes += added
        bytes += added
        return true
      },
      release: () => {
        if (isReleased) return
        isReleased = true
        entries -= 1
        bytes -= ownBytes
        own.entries -= 1
        own.bytes -= ownBytes
        if (own.entries === 0) owners.delete(owner)
      },
    }
  }

  return {
    reserve,
    get entries() {
      return entries
    },
    get bytes() {
      return bytes
    },
  }
}
