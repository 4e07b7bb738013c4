import { deletePrefix } from '../../core/delete-prefix.ts'
import { asObject, isJsonObject, type JsonObject, parseJson } from '../../core/json.ts'
import type { Runtime } from '../../core/ports.ts'
import { quotaOf, type Store } from '../../core/store.ts'
import type { LiveStream } from '../../streams/live-stream.ts'
import type { Lease } from '../../streams/lease.ts'
import type { Subscribers } from '../../streams/shared-work.ts'
import type { Recording } from '../../streams/event-buffer.ts'
import { MAX_BYTES_PER_STREAM } from '../../streams/capacity.ts'
import { livePrefixes } from '../../streams/live-names.ts'
import { yieldToEventLoop } from '../../tokens/event-loop.ts'

export type StoredResponse =
  | { readonly kind: 'events'; readonly text: string }
  /** A response sent as one JSON string, and its metrics. Its events are created on demand. */
  | { readonly kind: 'whole'; readonly text: string; readonly metrics: JsonObject }

/** `elsewhere`: another process is generating the response. */
export type FoundRecording = LiveRecording | { readonly response: StoredResponse } | 'elsewhere'

interface LiveRecording {
  readonly buffer: Recording
  readonly subscribers: Subscribers | undefined
}

interface Registration {
  readonly owner: string
  readonly id: string
  readonly subscribers: Subscribers | undefined
  /** True if other processes can follow the recording, because its caller may reconnect to any of them. */
  readonly isDetached: boolean
}

export interface RecordingsOptions extends Pick<Runtime, 'now' | 'after' | 'uuid'> {
  readonly store: Store
  readonly retentionSeconds?: number
  readonly maxBytesPerStream?: number
}

const HOUR_SECONDS = 3600
/** How long the name of a recording remains claimed after its process dies, in milliseconds. */
const LEASE_MS = 30_000
const LIVE = 'live'
const SAFE_ID = /^[\x21-\x7e]{1,200}$/

/** Stores answers that can be streamed again, by owner (key id) and id. */
export class Recordings {
  readonly #options: RecordingsOptions
  readonly #retentionMs: number
  readonly #maxBytes: number
  readonly #live = new Map<string, LiveRecording>()
  readonly #writes = new Map<string, Promise<unknown>>()

  constructor(options: RecordingsOptions) {
    const { retentionSeconds = HOUR_SECONDS, maxBytesPerStream = MAX_BYTES_PER_STREAM } = options
    this.#options = options
    this.#retentionMs = retentionSeconds * 1000
    this.#maxBytes = maxBytesPerStream
  }

  register(recording: Recording, registration: Registration): void {
    const { owner, id, subscribers, isDetached } = registration
    if (!SAFE_ID.test(id)) return
    const name = nameOf(owner, id)
    if (this.#live.get(name)?.buffer === recording) return
    const live = { buffer: recording, subscribers }
    this.#live.set(name, live)
    void this.#storeWhenEnded(live, registration, isDetached ? this.#acquireName(registration) : undefined)
    if (isDetached) void this.#trackWrite(`${name} live`, this.#publish(live, name, owner))
  }

  storeResponse(response: StoredResponse, owner: string, id: string): void {
    const text = SAFE_ID.test(id) ? this.#serialize(response) : undefined
    if (text !== undefined) void this.#trackWrite(nameOf(owner, id), this.#put(owner, id, text))
  }

  async find(owner: string, id: string): Promise<FoundRecording | undefined> {
    if (!SAFE_ID.test(id)) return undefined
    const name = nameOf(owner, id)
    const live = this.#live.get(name)
    if (live !== undefined) return live
    await this.#writes.get(name)
    return readStored(await this.#options.store.get(name))
  }

  async createStreamSearch(owner: string, id: string, idleMs: number): Promise<() => Promise<LiveStream | undefined>> {
    const { createStreamSearch } = await import('../../streams/live-stream.ts')
    const location = { store: this.#options.store, name: nameOf(owner, id), quota: quotaOf('live-stream', owner) }
    return createStreamSearch(location, { ...this.#options, idleMs })
  }

  /** Also deletes the parts by which other processes follow recordings in progress. */
  async purge(owner: string): Promise<void> {
    for (const prefix of [nameOf(owner, ''), ...livePrefixes(nameOf(owner, ''))])
      await deletePrefix(this.#options.store, prefix, yieldToEventLoop)
  }

  /** Resolves when all writes have settled, including the publication of recordings in progress. */
  async flush(): Promise<void> {
    while (this.#writes.size > 0) await Promise.all(this.#writes.values())
  }

  async #storeWhenEnded(
    recording: LiveRecording,
    { owner, id }: Registration,
    pendingLease: Promise<Lease | undefined> | undefined,
  ): Promise<void> {
    const name = nameOf(owner, id)
    const { text } = await recording.buffer.ended
    const lease = await pendingLease
    const stored = text === undefined ? undefined : this.#serialize({ kind: 'events', text })
    if (lease !== undefined) await this.#trackWrite(name, lease.end(stored, this.#retentionMs))
    else if (stored !== undefined && this.#live.get(name) === recording) {
      await this.#trackWrite(name, this.#put(owner, id, stored))
    }
    if (this.#live.get(name) === recording) this.#live.delete(name)
  }

  async #acquireName({ owner, id }: Registration): Promise<Lease | undefined> {
    const { store, after, uuid } = this.#options
    const value = `${JSON.stringify({ kind: LIVE, token: uuid() })}\n`
    const request = { name: nameOf(owner, id), expected: undefined, value, leaseMs: LEASE_MS }
    try {
      const { acquireLease } = await import('../../streams/live-stream.ts')
      return await acquireLease({ store, after }, { ...request, quota: quotaOf('recording', owner) })
    } catch {
      return undefined
    }
  }

  async #publish({ buffer, subscribers }: LiveRecording, name: string, owner: string): Promise<void> {
    const { publishStream } = await import('../../streams/live-stream.ts')
    const follow: LiveStream['follow'] = (sink) => buffer.follow(0, sink)
    const stream = { metadata: {}, ended: buffer.ended, follow, summary: () => ({}), subscribers }
    const location = { store: this.#options.store, name, quota: quotaOf('live-stream', owner) }
    return publishStream(stream, location, this.#options)
  }

  #serialize(response: StoredResponse): string | undefined {
    const text = writeStored(response)
    return 2 * text.length > this.#maxBytes ? undefined : text
  }

  async #put(owner: string, id: string, text: string): Promise<void> {
    const options = { ttlMs: this.#retentionMs, quota: quotaOf('recording', owner) }
    await this.#options.store.set(nameOf(owner, id), text, options)
  }

  /** Makes reads of the same name wait for the write. Ignores failures, because the response does not depend on it. */
  async #trackWrite(name: string, write: Promise<unknown>): Promise<void> {
    const settled = write.catch(() => {})
    this.#writes.set(name, settled)
    await settled
    if (this.#writes.get(name) === settled) this.#writes.delete(name)
  }
}

/** Encodes the id, so that recordings of different owners cannot have the same name. */
function nameOf(owner: string, id: string): string {
  return `recording:${owner}:${encodeURIComponent(id)}`
}

/** One line of JSON, followed by the raw text, because serializing a long string as JSON is slow. */
function writeStored(response: StoredResponse): string {
  const head = response.kind === 'events' ? { kind: response.kind } : { kind: response.kind, metrics: response.metrics }
  return `${JSON.stringify(head)}\n${response.text}`
}

function readStored(value: string | undefined): FoundRecording | undefined {
  if (value === undefined) return undefined
  const end = value.indexOf('\n')
  const head = asObject(parseJson(value.slice(0, end)))
  const text = value.slice(end + 1)
  const metrics = head?.['metrics']
  if (head?.['kind'] === LIVE) return 'elsewhere'
  if (head?.['kind'] === 'events') return { response: { kind: 'events', text } }
  return head?.['kind'] === 'whole' && isJsonObject(metrics)
    ? { response: { kind: 'whole', text, metrics } }
    : undefined
}
