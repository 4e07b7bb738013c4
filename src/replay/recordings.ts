import { asObject, isJsonObject, type JsonObject, parseJson } from '../core/json.ts'
import type { Runtime } from '../core/ports.ts'
import { quotaOf, type Store } from '../core/store.ts'
import type { LiveStream } from './live-stream.ts'
import type { Subscribers } from './subscribers.ts'
import { type Lease, takeLease } from './lease.ts'
import { type CapacityShare, EventBuffer, type Recording } from './event-buffer.ts'

/** The stored form of a finished answer. */
export type StoredAnswer =
  /** The events as sent. */
  | { readonly kind: 'events'; readonly text: string }
  /** An answer that was sent as one JSON text, and its bill. Events are created from them on demand. */
  | { readonly kind: 'whole'; readonly text: string; readonly metrics: JsonObject }

export type FoundRecording = Live | { readonly kept: StoredAnswer } | 'elsewhere'

/** A recording that this process is still generating. */
export interface Live {
  readonly live: Recording
  /** The subscribers that keep the request running. */
  readonly subscribers: Subscribers | undefined
}

/** The name of a recording. */
export interface RecordingName {
  readonly owner: string
  readonly id: string
  readonly subscribers?: Subscribers
  /** Announces the recording to other processes, because its caller may reconnect to any of them. */
  readonly isDetached?: boolean
}

/** Answers that can be streamed again, by owner (the id of a key) and id. */
export interface Recordings {
  readonly isOn: boolean
  /** Returns the buffer of a stream. If the stream is not stored, or without capacity, only its caller can read it. */
  open(options: { readonly owner: string; readonly isStored: boolean }): EventBuffer
  /** Registers a stream under a name and stores the stream at its end. Replaces an older stream of the same name. */
  name(recording: Recording, name: RecordingName): void
  /** Stores an answer that was not streamed, in the background. */
  keep(kept: StoredAnswer, owner: string, id: string): void
  /** Finds a recording. Resolves with `elsewhere` if another process generates it. Rejects if the store fails. */
  find(owner: string, id: string): Promise<FoundRecording | undefined>
  /** Returns a search for the stream of a recording that another process generates. */
  search(owner: string, id: string, idleMs: number): Promise<() => Promise<LiveStream | undefined>>
  /** Resolves when all ended recordings are stored or refused by the store. */
  flush(): Promise<void>
  /** Number and bytes of the recordings in progress. */
  readonly size: { readonly entries: number; readonly bytes: number }
}

export interface RecordingsOptions extends Partial<CapacityLimits>, Pick<Runtime, 'now' | 'after' | 'uuid'> {
  readonly store: Store
  /** When false, no stream is registered or stored. @default true */
  readonly isOn?: boolean
  /** Retention of a finished answer in seconds. @default 3600 */
  readonly keepSeconds?: number
}

const MIB = 1024 * 1024
const BOUNDS: CapacityLimits = { entries: 10_000, bytes: 64 * MIB, bytesOfOne: 8 * MIB }
const HOUR_SECONDS = 3600
/** Time in milliseconds after which the recording of a dead process is abandoned. */
const LEASE_MS = 30_000
const LIVE = 'live'
/** Ids of all formats. Answers with other ids are not stored. */
const SAFE_ID = /^[\x21-\x7e]{1,200}$/

export function createRecordings(options: RecordingsOptions): Recordings {
  const { store, after, uuid, isOn = true, keepSeconds = HOUR_SECONDS, ...bounds } = options
  const capacity = createRecordingCapacity({ ...BOUNDS, ...bounds })
  const most = bounds.bytesOfOne ?? BOUNDS.bytesOfOne
  const live = new Map<string, Live>()
  const saving = new Map<string, Promise<unknown>>()

  /**
   * Tracks a write, so that readers of its name wait for it. Ignores a failure, because the answer was already sent.
   */
  async function save(name: string, work: Promise<unknown>): Promise<void> {
    const saved = work.catch(() => {})
    saving.set(name, saved)
    await saved
    if (saving.get(name) === saved) saving.delete(name)
  }

  /** Returns undefined for an answer above the maximum size. */
  function write(kept: StoredAnswer): string | undefined {
    const text = writeStored(kept)
    return 2 * text.length > most ? undefined : text
  }

  const put = (owner: string, id: string, text: string): Promise<void> =>
    store.set(nameOf(owner, id), text, { ttlMs: keepSeconds * 1000, quota: quotaOf('recording', owner) })

  async function keepWhenEnded(
    recorded: Live,
    { owner, id }: RecordingName,
    leased: Promise<Lease | undefined>,
  ): Promise<void> {
    const name = nameOf(owner, id)
    const { text } = await recorded.live.ended
    const lease = await leased
    const kept = text === undefined ? undefined : write({ kind: 'events', text })
    if (lease !== undefined) await save(name, lease.end(kept, keepSeconds * 1000))
    else if (kept !== undefined && live.get(name) === recorded) await save(name, put(owner, id, kept))
    if (live.get(name) === recorded) live.delete(name)
  }

  async function mark({ owner, id }: RecordingName): Promise<Lease | undefined> {
    const text = `${JSON.stringify({ kind: LIVE, token: uuid() })}\n`
    const lease = { name: nameOf(owner, id), expected: undefined, text, leaseMs: LEASE_MS }
    return takeLease({ store, after }, { ...lease, quota: quotaOf('recording', owner) }).catch(() => undefined)
  }

  /** Lets other processes follow the stream, because its caller may reconnect to any of them. */
  async function publish(recorded: Live, name: string, owner: string): Promise<void> {
    const { publishRecording } = await import('./live-stream.ts')
    return publishRecording(recorded, { values: store, name, quota: quotaOf('live-stream', owner) }, options)
  }

  return {
    isOn,
    open: ({ owner, isStored }) => new EventBuffer(isStored ? capacity.reserve(owner) : undefined),
    name: (recording, known) => {
      const { owner, id, subscribers, isDetached = false } = known
      if (!isOn || !SAFE_ID.test(id)) return
      const name = nameOf(owner, id)
      if (live.get(name)?.live === recording) return
      const recorded = { live: recording, subscribers }
      live.set(name, recorded)
      void keepWhenEnded(recorded, known, isDetached ? mark(known) : Promise.resolve(undefined))
      if (isDetached) void save(`${name} live`, publish(recorded, name, owner))
    },
    keep: (kept, owner, id) => {
      const text = isOn && SAFE_ID.test(id) ? write(kept) : undefined
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
      const place = { values: store, name: nameOf(owner, id), quota: quotaOf('live-stream', owner) }
      return createStreamSearch(place, { ...options, idleMs })
    },
    flush: async () => {
      while (saving.size > 0) await Promise.all(saving.values())
    },
    get size() {
      return { entries: capacity.entries, bytes: capacity.bytes }
    },
  }
}

/** Returns the name in the store. The id is encoded, so that the names of two owners never match. */
function nameOf(owner: string, id: string): string {
  return `recording:${owner}:${encodeURIComponent(id)}`
}

/** Writes one line of JSON and the raw text. Serializing a long text as JSON again would dominate the cost. */
function writeStored(kept: StoredAnswer): string {
  const head = kept.kind === 'events' ? { kind: kept.kind } : { kind: kept.kind, metrics: kept.metrics }
  return `${JSON.stringify(head)}\n${kept.text}`
}

function readStored(value: string | undefined): FoundRecording | undefined {
  if (value === undefined) return undefined
  const end = value.indexOf('\n')
  const head = asObject(parseJson(value.slice(0, end)))
  const text = value.slice(end + 1)
  const metrics = head?.['metrics']
  if (head?.['kind'] === LIVE) return 'elsewhere'
  if (head?.['kind'] === 'events') return { kept: { kind: 'events', text } }
  return head?.['kind'] === 'whole' && isJsonObject(metrics) ? { kept: { kind: 'whole', text, metrics } } : undefined
}

/** Limits of all recordings together. Each UTF-16 unit counts as two bytes. */
export interface CapacityLimits {
  /** Maximum number of simultaneous recordings. */
  readonly entries: number
  readonly bytes: number
  readonly bytesOfOne: number
}

/**
 * Capacity shared by all recordings in progress. Further recordings of one owner are accepted only while the owner uses
 * at most the amount that remains free, so that one owner cannot block the others.
 */
interface RecordingCapacity {
  /** Reserves capacity for one recording. Returns undefined if the owner may not have another recording. */
  reserve(owner: string): CapacityShare | undefined
  readonly entries: number
  readonly bytes: number
}

interface OwnerUsage {
  entries: number
  bytes: number
}

export function createRecordingCapacity(bounds: CapacityLimits): RecordingCapacity {
  const owners = new Map<string, OwnerUsage>()
  let entries = 0
  let bytes = 0

  function reserve(owner: string): CapacityShare | undefined {
    const own = owners.get(owner) ?? { entries: 0, bytes: 0 }
    const free = bounds.entries - entries - 1
    if (free < 0 || (own.entries > 0 && own.entries + 1 > free)) return undefined
    owners.set(owner, own)
    own.entries += 1
    entries += 1
    let ownBytes = 0
    let isReleased = false

    function fits(more: number): boolean {
      const left = bounds.bytes - bytes - more
      if (left < 0 || ownBytes + more > bounds.bytesOfOne) return false
      return own.entries === 1 || own.bytes + more <= left
    }

    return {
      take: (more) => {
        if (isReleased || !fits(more)) return false
        ownBytes += more
        own.bytes += more
        bytes += more
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
    reserve: reserve,
    get entries() {
      return entries
    },
    get bytes() {
      return bytes
    },
  }
}
