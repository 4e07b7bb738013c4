import type { Store } from './store.ts'
import type { Completion } from './completion.ts'
import type { Json, JsonObject } from './json.ts'
import { lastUserIndex } from './messages.ts'
import { type Part, type Prompt, type Source } from './prompt.ts'

/** A stored response and the request that it answers. */
export interface CachedResponse {
  readonly id: string
  readonly scope: string
  /** The normalized question. */
  readonly text: string
  /** The key whose request stored the response. Requests of other keys in the scope also find it. */
  readonly keyId: string
  readonly completion: Completion
  /** Prompt tokens before any tier shortened the prompt. A hit saves this number of tokens. */
  readonly promptTokens: number
  /** Milliseconds since 1970. */
  readonly storedAt: number
  readonly expiresAt: number
  /** True if a similar text can hit, false if only an identical text can hit. */
  readonly comparable: boolean
  /** Minimum similarity for a hit by another text. Reports of wrong hits raise it. @default 0 */
  readonly threshold?: number
  /** Highest similarity at which another text has hit since the last report. @default 0 */
  readonly maxHitSimilarity?: number
}

/** The size of a response store. */
export interface StoreSize {
  readonly entries: number
  readonly bytes: number
}

/** Stores answers. A lookup that fails counts as a miss. Methods return a promise only if they must wait. */
export interface ResponseStore {
  get(id: string): CachedResponse | undefined | Promise<CachedResponse | undefined>
  /** Like `get`, but does not mark the entry as used. @default get */
  peek?(id: string): CachedResponse | undefined | Promise<CachedResponse | undefined>
  /** Returns false if the response is not stored, because it exceeds the capacity of the store. */
  put(response: CachedResponse): boolean | Promise<boolean>
  /** Has no effect if the entry no longer exists. */
  amend(id: string, changes: Pick<CachedResponse, 'threshold' | 'maxHitSimilarity'>): void | Promise<void>
  remove(id: string): void | Promise<void>
  hasComparable(scope: string): boolean | Promise<boolean>
  /** Removes all entries, or those stored by requests of one key. */
  clear(keyId?: string): void | Promise<void>
  /** A store that several processes share may count only the entries of this process. */
  size(): StoreSize
  /** Claims that let one process compute a response for all processes. @default each process computes it */
  readonly claims?: ResponseClaims
  /** As of a `Store`. */
  useClock?(now: () => number): void
}

/** Claims on answers that are not stored yet. Claims expire, because a process may end before it releases its claim. */
export interface ResponseClaims {
  /** Returns true for the process that must compute the response. */
  acquire(id: string, ttlMs: number): Promise<boolean>
  isHeld(id: string): Promise<boolean>
  /** Ends a claim of this process. */
  release(id: string): Promise<void>
  /** Shared values for the stream of the claim's owner. @default other processes wait for the complete response */
  readonly values?: StreamValues
}

/** Small values that processes share to follow the stream of another. */
export type StreamValues = Pick<Store, 'get' | 'set' | 'swap'>

/** Converts texts to vectors of `dimensions` numbers. `embed` returns a promise only if it must wait. */
export interface Embedder {
  readonly name: string
  readonly dimensions: number
  /** US dollars per million tokens, for the actual cost of requests with `savings.embedder`. @default 0 */
  readonly price?: number
  /**
   * Maximum number of texts that `savings.embedder` passes to a call. If the time limit ends before all calls have, the
   * vectors of the completed calls are used. @default 128
   */
  readonly textsPerCall?: number
  embed(texts: readonly string[], signal?: AbortSignal): readonly Float32Array[] | Promise<readonly Float32Array[]>
}

/** A stored vector that is similar to the query. */
export interface Neighbor {
  readonly id: string
  /** Cosine similarity, from -1 to 1. */
  readonly similarity: number
}

/** Finds the nearest vectors within a scope. Vectors have a norm of 1. */
export interface VectorIndex {
  add(entry: {
    readonly id: string
    readonly scope: string
    /** The key whose request stored the entry. An index may limit the number of entries per owner. */
    readonly owner?: string
    readonly vector: Float32Array
    readonly expiresAt: number
  }): void | Promise<void>
  /** Returns at most `limit` vectors with a similarity of at least `minSimilarity`, nearest first. */
  nearest(
    scope: string,
    vector: Float32Array,
    options: { readonly minSimilarity: number; readonly limit: number },
  ): readonly Neighbor[] | Promise<readonly Neighbor[]>
  remove(id: string): void | Promise<void>
  clear(): void | Promise<void>
  /** Returns one sentence for each guarantee that the storage does not provide as configured. */
  warnings?(): Promise<readonly string[]>
  /** As of a `Store`. */
  useClock?(now: () => number): void
}

/** Maximum length of a string that is used as its own digest, in UTF-16 code units. */
const MAX_PLAIN_LENGTH = 256 * 1024
const SLICE_LENGTH = 256 * 1024

/** Passed by callers, because `core` must not depend on a hash implementation. */
type TextHash = (text: string) => string

type DigestSteps = Generator<void, string, undefined>

/** Digests of long data by the object that contains it. Objects in a prompt are immutable. */
const digests = new WeakMap<object, string>()

/** Hashing a long string blocks the event loop, unless `digestWithPauses` has already cached the digest. */
export function digestText(owner: object, text: string, hash: TextHash): string {
  if (text.length <= MAX_PLAIN_LENGTH) return text
  return runToEnd(digestTextInSteps(owner, text, hash))
}

export function digestJson(value: JsonObject, hash: TextHash): string {
  const known = digests.get(value)
  if (known !== undefined) return known
  const text = JSON.stringify(value)
  return text.length <= MAX_PLAIN_LENGTH ? text : runToEnd(digestJsonInSteps(value, hash, text))
}

function runToEnd(steps: DigestSteps): string {
  for (;;) {
    const result = steps.next()
    if (result.done === true) return result.value
  }
}

function* digestTextInSteps(owner: object, text: string, hash: TextHash): DigestSteps {
  const known = digests.get(owner)
  if (known !== undefined) return known
  const digest = yield* hashInSlices(text, hash)
  digests.set(owner, digest)
  return digest
}

/** Hash functions replace each lone surrogate with the same character. JSON escapes lone surrogates. */
const SURROGATE = /[\uD800-\uDFFF]/

function* hashInSlices(text: string, hash: TextHash): DigestSteps {
  let digest = ''
  for (let start = 0; start < text.length; start += SLICE_LENGTH) {
    if (start > 0) yield
    const slice = text.slice(start, start + SLICE_LENGTH)
    digest = hash(`${digest}${SURROGATE.test(slice) ? JSON.stringify(slice) : slice}`)
  }
  return `sha256 ${text.length} ${digest}`
}

/** The digest includes the position of each long string, because the object may contain other nulls. */
export function* digestJsonInSteps(value: JsonObject, hash: TextHash, serialized?: string): DigestSteps {
  const known = digests.get(value)
  if (known !== undefined) return known
  // A replacer function takes several times as long as the rest, and most objects have no long string.
  if (!hasLongString(value)) {
    const text = serialized ?? JSON.stringify(value)
    if (text.length <= MAX_PLAIN_LENGTH) return text
    const digest = yield* hashInSlices(text, hash)
    digests.set(value, digest)
    return digest
  }
  const longStrings: (readonly [number, string])[] = []
  let position = 0
  const shortened = JSON.stringify(value, (_name, field: Json | undefined) => {
    // JSON omits undefined fields.
    if (field !== undefined) position++
    if (typeof field !== 'string' || field.length <= MAX_PLAIN_LENGTH) return field
    longStrings.push([position, field])
    return null
  })
  let digest = yield* hashInSlices(shortened, hash)
  for (const [index, text] of longStrings) digest += ` ${index} ${yield* hashInSlices(text, hash)}`
  digests.set(value, digest)
  return digest
}

function hasLongString(value: Json | undefined): boolean {
  if (typeof value === 'string') return value.length > MAX_PLAIN_LENGTH
  if (typeof value !== 'object' || value === null) return false
  if (Array.isArray(value)) return (value as readonly Json[]).some(hasLongString)
  const fields = value as JsonObject
  for (const name in fields) if (hasLongString(fields[name])) return true
  return false
}

export async function digestWithPauses(pending: readonly DigestSteps[], pause: () => Promise<void>): Promise<void> {
  for (const steps of pending) while (steps.next().done !== true) await pause()
}

export function longMediaDigests({ messages }: Pick<Prompt, 'messages'>, hash: TextHash): readonly DigestSteps[] {
  const sources = messages.flatMap(({ parts }) => parts.flatMap(mediaOf)).map(({ source }) => source)
  return sources.filter(isLong).map((source) => digestTextInSteps(source, source.data, hash))
}

export function longBlockDigests({ messages }: Pick<Prompt, 'messages'>, hash: TextHash): readonly DigestSteps[] {
  const lastIndex = lastUserIndex(messages)
  const natives = messages.flatMap((message, index) => {
    const longParts = message.parts.filter((part) => mediaOf(part).some(({ source }) => isLong(source)))
    return longParts.length > 0 && index !== lastIndex ? [message.native] : longParts.map(({ native }) => native)
  })
  return natives.flatMap((native) => (native === undefined ? [] : [digestJsonInSteps(native.value, hash)]))
}

type Media = Extract<Part, { readonly type: 'image' | 'document' }>

function mediaOf(part: Part): readonly Media[] {
  if (part.type === 'tool-result') return part.content.flatMap(mediaOf)
  return part.type === 'image' || part.type === 'document' ? [part] : []
}

function isLong(source: Media['source']): source is Extract<Source, { readonly type: 'base64' }> {
  return source.type === 'base64' && source.data.length > MAX_PLAIN_LENGTH
}
