import type { Completion } from '../../core/completion.ts'
import { type Cancellation, isPromise, isThenable, type MaybePromise, withTimeout } from '../../core/async.ts'
import type { ResponseStore, CachedResponse, VectorIndex } from '../../core/cache.ts'
import { asObject, type JsonObject } from '../../core/json.ts'
import type { Runtime } from '../../core/ports.ts'
import type { Native } from '../../core/prompt.ts'

export interface MemoryResponseStoreOptions {
  readonly maxEntries: number
  readonly maxBytes: number
  readonly indexBytes: (text: string) => number
  /** Also called for an entry that is too large to store, but not for a replaced entry. */
  readonly onRemove: (response: CachedResponse) => void
}

const OVERHEAD_BYTES = 1024

interface Entry {
  readonly response: CachedResponse
  readonly owner: Owner
  readonly bytes: number
}

/** The entries of one key, least recently used first. */
interface Owner {
  readonly entries: Map<string, Entry>
  /** Continues after the last evicted entry. A new iterator would skip all deleted entries again. */
  evictionOrder: Iterator<Entry, undefined>
  bytes: number
}

/** Evicts from the owner with the largest share, so an owner below an equal share loses no entries to others. */
export function createMemoryResponseStore(options: MemoryResponseStoreOptions): ResponseStore {
  const { maxEntries, maxBytes, indexBytes, onRemove } = options
  const entries = new Map<string, Entry>()
  const owners = new Map<string, Owner>()
  const comparableCounts = new Map<string, number>()
  let bytes = 0

  const adjustCount = ({ comparable, scope }: CachedResponse, change: number): void => {
    if (!comparable) return
    const total = (comparableCounts.get(scope) ?? 0) + change
    if (total > 0) comparableCounts.set(scope, total)
    else comparableCounts.delete(scope)
  }
  const attach = (entry: Entry): void => {
    const { response, owner } = entry
    owners.set(response.keyId, owner)
    owner.entries.set(response.id, entry)
    owner.bytes += entry.bytes
    entries.set(response.id, entry)
    bytes += entry.bytes
    adjustCount(response, 1)
  }
  const detach = ({ response, owner, bytes: entryBytes }: Entry): void => {
    entries.delete(response.id)
    bytes -= entryBytes
    adjustCount(response, -1)
    owner.entries.delete(response.id)
    owner.bytes -= entryBytes
    if (owner.entries.size === 0) owners.delete(response.keyId)
  }
  const remove = (entry: Entry): void => {
    detach(entry)
    onRemove(entry.response)
  }
  /** Also moves the owner to the end, because `evict` takes the first of several owners with equal shares. */
  const touch = (entry: Entry): void => {
    const { response, owner } = entry
    owner.entries.delete(response.id)
    owner.entries.set(response.id, entry)
    owners.delete(response.keyId)
    owners.set(response.keyId, owner)
  }
  const shareOf = (owner: Owner): number => Math.max(owner.entries.size / maxEntries, owner.bytes / maxBytes)
  const evict = (): void => {
    let largest: Owner | undefined
    for (const owner of owners.values()) {
      if (largest === undefined || shareOf(owner) > shareOf(largest)) largest = owner
    }
    const oldest = largest === undefined ? undefined : oldestOf(largest)
    if (oldest !== undefined) remove(oldest)
  }

  return {
    get: (id) => {
      const entry = entries.get(id)
      if (entry !== undefined) touch(entry)
      return entry?.response
    },
    peek: (id) => entries.get(id)?.response,
    put: (response) => {
      const old = entries.get(response.id)
      if (old !== undefined) detach(old)
      const entry: Entry = {
        response: { ...response, completion: dropParsedValue(response.completion) },
        owner: owners.get(response.keyId) ?? newOwner(),
        bytes: bytesOf(response) + (response.comparable ? indexBytes(response.text) : 0),
      }
      if (entry.bytes > maxBytes) {
        onRemove(entry.response)
        return false
      }
      attach(entry)
      while (entries.size > maxEntries || bytes > maxBytes) evict()
      return entries.get(response.id) === entry
    },
    amend: (id, changes) => {
      const old = entries.get(id)
      if (old === undefined) return
      const entry = { ...old, response: { ...old.response, ...changes } }
      entries.set(id, entry)
      old.owner.entries.set(id, entry)
    },
    remove: (id) => {
      const entry = entries.get(id)
      if (entry !== undefined) remove(entry)
    },
    hasComparable: (scope) => comparableCounts.has(scope),
    clear: (keyId) => (keyId === undefined ? entries : owners.get(keyId)?.entries)?.forEach(remove),
    size: () => ({ entries: entries.size, bytes }),
  }
}

function newOwner(): Owner {
  const entries = new Map<string, Entry>()
  return { entries, evictionOrder: entries.values(), bytes: 0 }
}

function oldestOf(owner: Owner): Entry | undefined {
  const next = owner.evictionOrder.next()
  if (next.done !== true) return next.value
  // An exhausted iterator never yields again, even if entries were added.
  owner.evictionOrder = owner.entries.values()
  return owner.evictionOrder.next().value
}

/** Two bytes per UTF-16 code unit. A native response counts twice, because it may be stored in parsed form. */
function bytesOf({ id, text, completion }: CachedResponse): number {
  const { native, parts } = completion
  let length = id.length + text.length
  for (const part of parts) length += 'text' in part ? part.text.length : 0
  if (native !== undefined) length += (native.text?.length ?? JSON.stringify(native.value).length) * 2
  return OVERHEAD_BYTES + 2 * length
}

/** Drops the parsed value if the text is known, because garbage collections visit each object of a stored value. */
function dropParsedValue(completion: Completion): Completion {
  const { native } = completion
  return native?.text === undefined
    ? completion
    : { ...completion, native: new StoredNative(native.dialect, native.text) }
}

class StoredNative implements Native {
  readonly dialect: Native['dialect']
  readonly text: string

  constructor(dialect: Native['dialect'], text: string) {
    this.dialect = dialect
    this.text = text
  }

  get value(): JsonObject {
    return asObject(JSON.parse(this.text)) ?? {}
  }
}

export interface Timeout {
  readonly ms: number
  readonly after: Runtime['after']
  readonly cancellation?: Cancellation | undefined
}

/** Rejects after a timeout or a cancellation, but does not stop the work. Throws if already canceled. */
export function runWithTimeout<T>(timeout: Timeout, work: () => MaybePromise<T>): MaybePromise<T> {
  throwIfCanceled(timeout.cancellation)
  const result = work()
  if (!isThenable(result)) return result
  const createError = (): Error => new Error(`A cache component took longer than ${timeout.ms} ms.`)
  return withTimeout(result, { ...timeout, createError })
}

export function runAbortable<T>(timeout: Timeout, work: (signal: AbortSignal) => MaybePromise<T>): MaybePromise<T> {
  const controller = new AbortController()
  const result = runWithTimeout(timeout, () => work(controller.signal))
  return isPromise(result) ? result.finally(() => controller.abort()) : result
}

export function throwIfCanceled(cancellation: Cancellation | undefined): void {
  if (cancellation?.isCanceled === true) throw cancellation.reason
}

const MAX_FAILURES = 3
const PAUSE_MS = 10_000

/** Pauses a failing component, so that requests do not wait for its timeouts. */
export class FailurePause {
  readonly #now: () => number
  #failures = 0
  #pausedUntil = 0

  constructor(now: () => number) {
    this.#now = now
  }

  get isPaused(): boolean {
    return this.#now() < this.#pausedUntil
  }

  countFailure(): void {
    this.#failures += 1
    if (this.#failures >= MAX_FAILURES) this.#pausedUntil = this.#now() + PAUSE_MS
  }

  reset(): void {
    this.#failures = 0
  }
}

interface GuardOptions {
  readonly runtime: Pick<Runtime, 'now' | 'after'>
  readonly timeoutMs: number
}

function createGuardedCall({ runtime: { now, after }, timeoutMs: ms }: GuardOptions) {
  const pause = new FailurePause(now)
  const fail = (error: unknown): never => {
    pause.countFailure()
    throw error
  }
  const succeed = <T>(value: T): T => {
    pause.reset()
    return value
  }
  return <T>(work: () => MaybePromise<T>): MaybePromise<T> => {
    if (pause.isPaused) throw new Error('The cache store or index is paused after repeated failures.')
    try {
      const result = runWithTimeout({ ms, after }, work)
      return isPromise(result) ? result.then(succeed, fail) : succeed(result)
    } catch (error) {
      return fail(error)
    }
  }
}

/** `clear` has no deadline, because it delays no request. */
export function guardResponseStore(store: ResponseStore, options: GuardOptions): ResponseStore {
  const call = createGuardedCall(options)
  const { claims, peek = store.get } = store
  const values = claims?.values
  return {
    get: (id) => call(() => store.get(id)),
    peek: (id) => call(() => peek.call(store, id)),
    put: (response) => call(() => store.put(response)),
    amend: (id, changes) => call(() => store.amend(id, changes)),
    remove: (id) => call(() => store.remove(id)),
    hasComparable: (scope) => call(() => store.hasComparable(scope)),
    clear: async (keyId) => store.clear(keyId),
    size: () => store.size(),
    ...(claims !== undefined && {
      claims: {
        acquire: async (id, ttlMs) => call(() => claims.acquire(id, ttlMs)),
        isHeld: async (id) => call(() => claims.isHeld(id)),
        release: async (id) => call(() => claims.release(id)),
        ...(values !== undefined && {
          values: {
            get: (key) => call(() => values.get(key)),
            set: async (key, value, options) => call(() => values.set(key, value, options)),
            swap: async (key, expected, value, options) => call(() => values.swap(key, expected, value, options)),
          },
        }),
      },
    }),
  }
}

export function guardVectorIndex(index: VectorIndex, options: GuardOptions): VectorIndex {
  const call = createGuardedCall(options)
  return {
    add: (entry) => call(() => index.add(entry)),
    nearest: (scope, vector, options) => call(() => index.nearest(scope, vector, options)),
    remove: (id) => call(() => index.remove(id)),
    clear: async () => index.clear(),
  }
}
