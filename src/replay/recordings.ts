import { isJsonObject, type JsonObject } from '../core/json.ts'
import type { Store } from '../core/ports.ts'
import type { Audience } from './audience.ts'
import { createRecording, type Recording, type TextSource } from './recording.ts'
import { createRoom, type RoomBounds } from './room.ts'

/** What a finished answer is kept as. */
export type Kept =
  /** The events as they left. */
  | { readonly kind: 'events'; readonly text: string }
  /** An answer that left as one JSON text, and its bill: what the events are made from when somebody asks for them. */
  | { readonly kind: 'whole'; readonly text: string; readonly metrics: JsonObject }

export type Found = Live | { readonly kept: Kept }

/** Still being generated, in this process. */
export interface Live {
  readonly live: Recording
  /** Those who keep it going. */
  readonly audience: Audience | undefined
}

/** Answers that can be had again as event streams, by their owner (a key's id) and their id. */
export interface Recordings {
  readonly isOn: boolean
  /** Every stream passes through a recording; without `keep`, or without room, only its own caller reads it. */
  record(source: TextSource, options: { readonly keep: boolean; readonly farewell: () => string }): Recording
  /** Makes a stream known under a name, and keeps it when it has ended. A name that is taken goes to the newer one. */
  name(recording: Recording, owner: string, id: string, audience?: Audience): void
  /** Keeps an answer that was no stream. Nobody waits for it. */
  keep(kept: Kept, owner: string, id: string): void
  /** Rejects when the store cannot tell. */
  find(owner: string, id: string): Promise<Found | undefined>
  /** Resolves when everything that ended is in the store, or was refused by it. */
  flush(): Promise<void>
  /** Recordings that are being made, and what they hold. */
  readonly size: { readonly entries: number; readonly bytes: number }
}

export interface RecordingsOptions extends Partial<RoomBounds> {
  readonly store: Store
  /** False: nothing is known by a name or kept. @default true */
  readonly isOn?: boolean
  /** How long a finished answer can be had again, in seconds. @default 3600 */
  readonly keepSeconds?: number
}

const MIB = 1024 * 1024
const BOUNDS: RoomBounds = { entries: 10_000, bytes: 64 * MIB, bytesOfOne: 8 * MIB }
const HOUR_SECONDS = 3600
/** Ids as all formats write them; another one is not kept. */
const NAMABLE = /^[\x21-\x7e]{1,200}$/

export function createRecordings(options: RecordingsOptions): Recordings {
  const { store, isOn = true, keepSeconds = HOUR_SECONDS, ...bounds } = options
  const room = createRoom({ ...BOUNDS, ...bounds })
  const most = bounds.bytesOfOne ?? BOUNDS.bytesOfOne
  const live = new Map<string, Live>()
  const saving = new Set<Promise<void>>()

  function save(name: string, kept: Kept): Promise<void> {
    const text = writeKept(kept)
    if (2 * text.length > most) return Promise.resolve()
    // An answer that cannot be had again is still answered.
    const saved = store.set(name, text, { ttlMs: keepSeconds * 1000 }).catch(() => {})
    saving.add(saved)
    return saved.finally(() => void saving.delete(saved))
  }

  async function keepWhenEnded(recorded: Live, name: string): Promise<void> {
    const { text } = await recorded.live.ended
    if (text !== undefined && live.get(name) === recorded) await save(name, { kind: 'events', text })
    if (live.get(name) === recorded) live.delete(name)
  }

  return {
    isOn,
    record: (source, { keep, farewell }) =>
      createRecording(source, { place: keep ? room.enter() : undefined, farewell }),
    name: (recording, owner, id, audience) => {
      if (!isOn || !NAMABLE.test(id)) return
      const name = nameOf(owner, id)
      if (live.get(name)?.live === recording) return
      const recorded = { live: recording, audience }
      live.set(name, recorded)
      void keepWhenEnded(recorded, name)
    },
    keep: (kept, owner, id) => {
      if (isOn && NAMABLE.test(id)) void save(nameOf(owner, id), kept)
    },
    find: async (owner, id) => {
      if (!NAMABLE.test(id)) return undefined
      const name = nameOf(owner, id)
      const recorded = live.get(name)
      if (recorded !== undefined) return recorded
      const kept = readKept(await store.get(name))
      return kept === undefined ? undefined : { kept }
    },
    flush: async () => {
      while (saving.size > 0) await Promise.all(saving)
    },
    get size() {
      return { entries: room.entries, bytes: room.bytes }
    },
  }
}

/** The id is encoded, so that no id of one owner can spell an id of another. */
function nameOf(owner: string, id: string): string {
  return `recording:${owner}:${encodeURIComponent(id)}`
}

/** One line that says what it is, and the text as it is: writing a long text as JSON once more would cost more than all the rest. */
function writeKept(kept: Kept): string {
  const head = kept.kind === 'events' ? { kind: kept.kind } : { kind: kept.kind, metrics: kept.metrics }
  return `${JSON.stringify(head)}\n${kept.text}`
}

function readKept(value: string | undefined): Kept | undefined {
  if (value === undefined) return undefined
  const end = value.indexOf('\n')
  const head = readHead(value.slice(0, end))
  const text = value.slice(end + 1)
  const metrics = head?.['metrics']
  if (head?.['kind'] === 'events') return { kind: 'events', text }
  return head?.['kind'] === 'whole' && isJsonObject(metrics) ? { kind: 'whole', text, metrics } : undefined
}

function readHead(line: string): JsonObject | undefined {
  try {
    const head: unknown = JSON.parse(line)
    return isJsonObject(head) ? head : undefined
  } catch {
    return undefined
  }
}
