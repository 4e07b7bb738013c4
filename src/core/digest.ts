import type { Json, JsonObject } from './json.ts'
import { lastUserIndex, type Part, type Prompt, type Source } from './prompt.ts'

/** Maximum length of a string that is used as its own digest, in UTF-16 code units. */
const MAX_PLAIN_LENGTH = 256 * 1024
const SLICE_LENGTH = 256 * 1024

/** Returns a hexadecimal hash. Passed by callers, because `core` must not depend on a hash implementation. */
export type TextHash = (text: string) => string

/** Digests of long data by the object that contains it. Objects in a prompt are immutable. */
const digests = new WeakMap<object, string>()

/**
 * Returns a unique digest of a string. Hashing a long string blocks the event loop, unless `digestWithPauses` has
 * already cached the digest. Digests are cached by `owner`, the object that contains the string.
 */
export function digestText(owner: object, text: string, hash: TextHash): string {
  if (text.length <= MAX_PLAIN_LENGTH) return text
  return runToEnd(digestTextInSteps(owner, text, hash))
}

/** Returns a unique digest of an object. Does not serialize an object whose digest is cached. */
export function digestJson(value: JsonObject, hash: TextHash): string {
  const known = digests.get(value)
  if (known !== undefined) return known
  const text = JSON.stringify(value)
  return text.length <= MAX_PLAIN_LENGTH ? text : runToEnd(digestJsonInSteps(value, hash))
}

function runToEnd(steps: Generator<void, string, undefined>): string {
  for (;;) {
    const result = steps.next()
    if (result.done === true) return result.value
  }
}

function* digestTextInSteps(owner: object, text: string, hash: TextHash): Generator<void, string, undefined> {
  const known = digests.get(owner)
  if (known !== undefined) return known
  const digest = yield* hashInSlices(text, hash)
  digests.set(owner, digest)
  return digest
}

/**
 * Matches a slice that may split a surrogate pair. Hash functions replace every lone surrogate with the same character.
 * JSON escapes lone surrogates, so the JSON of such a slice is hashed.
 */
const SURROGATE = /[\uD800-\uDFFF]/

function* hashInSlices(text: string, hash: TextHash): Generator<void, string, undefined> {
  let digest = ''
  for (let start = 0; start < text.length; start += SLICE_LENGTH) {
    if (start > 0) yield
    const slice = text.slice(start, start + SLICE_LENGTH)
    digest = hash(`${digest}${SURROGATE.test(slice) ? JSON.stringify(slice) : slice}`)
  }
  return `sha256 ${text.length} ${digest}`
}

/**
 * Digests each long string, and the object's JSON with `null` in place of long strings. The digest includes the
 * position of each string, because the object may contain other nulls.
 */
function* digestJsonInSteps(value: JsonObject, hash: TextHash): Generator<void, string, undefined> {
  const known = digests.get(value)
  if (known !== undefined) return known
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

/** Starts the computation of one digest. Each step of the generator hashes one slice. */
type StartDigest = (hash: TextHash) => Generator<void, string, undefined>

/** Computes and caches digests. Yields to the event loop between slices. */
export async function digestWithPauses(
  startFunctions: readonly StartDigest[],
  { hash, pause }: { readonly hash: TextHash; readonly pause: () => Promise<void> },
): Promise<void> {
  for (const startDigest of startFunctions) {
    const steps = startDigest(hash)
    while (steps.next().done !== true) await pause()
  }
}

/** Returns functions that start the digests of long images and documents. */
export function longMediaDigests({ messages }: Pick<Prompt, 'messages'>): readonly StartDigest[] {
  const sources = messages.flatMap(({ parts }) => parts.flatMap(mediaOf)).map(({ source }) => source)
  return sources.filter(isLong).map((source) => (hash) => digestTextInSteps(source, source.data, hash))
}

/**
 * Returns functions that start the digests of the blocks with long images or documents in the last user message, and of
 * other messages with such blocks.
 */
export function longBlockDigests({ messages }: Pick<Prompt, 'messages'>): readonly StartDigest[] {
  const lastIndex = lastUserIndex(messages)
  const natives = messages.flatMap((message, index) => {
    const longParts = message.parts.filter((part) => mediaOf(part).some(({ source }) => isLong(source)))
    return longParts.length > 0 && index !== lastIndex ? [message.native] : longParts.map(({ native }) => native)
  })
  return natives.flatMap((native) => (native === undefined ? [] : [(hash) => digestJsonInSteps(native.value, hash)]))
}

type Media = Extract<Part, { readonly type: 'image' | 'document' }>

function mediaOf(part: Part): readonly Media[] {
  if (part.type === 'tool-result') return part.content.flatMap(mediaOf)
  return part.type === 'image' || part.type === 'document' ? [part] : []
}

function isLong(source: Media['source']): source is Extract<Source, { readonly type: 'base64' }> {
  return source.type === 'base64' && source.data.length > MAX_PLAIN_LENGTH
}
