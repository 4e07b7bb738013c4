import type { Pause } from './async.ts'
import { countTexts, replaceByTexts } from './exact-json.ts'
import { isJsonObject, type Json, type JsonObject } from './json.ts'

/** A computation in short steps. Callers can yield to the event loop between steps. */
export type Steps<T> = Generator<void, T, undefined>

/** Computes all steps at once. */
export function runSteps<T>(steps: Steps<T>): T {
  for (;;) {
    const result = steps.next()
    if (result.done === true) return result.value
  }
}

export async function runWithPauses<T>(steps: Steps<T>, pause: Pause): Promise<T> {
  for (;;) {
    const result = steps.next()
    if (result.done === true) return result.value
    await pause()
  }
}

/** The number of messages, parts or elements that are processed per step. */
const SLICE_LENGTH = 256

/** Maps slices of a list in one step each. `map` receives the index of the first item of its slice. */
export function* mapSlices<T, R>(
  items: readonly T[],
  map: (slice: readonly T[], start: number) => readonly R[],
): Steps<readonly R[]> {
  const mapped: R[] = []
  for (let start = 0; start < items.length; start += SLICE_LENGTH) {
    if (start > 0) yield
    for (const result of map(items.slice(start, start + SLICE_LENGTH), start)) mapped.push(result)
  }
  return mapped
}

export function* forEachInSteps<T>(items: readonly T[], run: (item: T, index: number) => void): Steps<void> {
  for (const [index, item] of items.entries()) {
    if (index > 0 && index % SLICE_LENGTH === 0) yield
    run(item, index)
  }
}

type Serialize = (value: Json) => string

/** Serializes long arrays, and objects that contain them, in slices. */
export function* serializeInSteps(
  value: Json,
  serialize: Serialize = JSON.stringify,
  depth: number = MAX_LIST_DEPTH,
): Steps<string> {
  if (Array.isArray(value)) return yield* serializeList(value as readonly Json[], serialize, depth)
  if (!isJsonObject(value) || !containsLongList(value, depth)) return serialize(value)
  const members: string[] = []
  for (const [name, field] of Object.entries(value)) {
    if (field !== undefined)
      members.push(`${JSON.stringify(name)}:${yield* serializeInSteps(field, serialize, depth - 1)}`)
  }
  return `{${members.join(',')}}`
}

function* serializeList(list: readonly Json[], serialize: Serialize, depth: number): Steps<string> {
  const texts: string[] = []
  let start = 0
  for (const [index, element] of list.entries()) {
    const isLong = containsLongList(element, depth)
    if (!isLong && index - start < SLICE_LENGTH) continue
    if (index > start) {
      texts.push(serialize(list.slice(start, index)).slice(1, -1))
      yield
    }
    start = index
    if (!isLong) continue
    texts.push(yield* serializeInSteps(element, serialize, depth))
    start = index + 1
  }
  if (start < list.length) texts.push(serialize(list.slice(start)).slice(1, -1))
  return `[${texts.join(',')}]`
}

/** The lists of a prompt are at most this many objects deep: a body, a message, a part. */
const MAX_LIST_DEPTH = 3

function containsLongList(value: Json | undefined, depth: number): boolean {
  if (Array.isArray(value)) {
    const list = value as readonly Json[]
    return list.length > SLICE_LENGTH || list.some((element) => containsLongList(element, depth))
  }
  if (!isJsonObject(value) || depth === 0) return false
  for (const name in value) if (containsLongList(value[name], depth - 1)) return true
  return false
}

/** As `serializeExactly`, in steps. */
export function* serializeExactlyInSteps(building: Steps<JsonObject>): Steps<string> {
  let hasTexts = false
  for (;;) {
    // Other computations may keep texts between two steps.
    const before = countTexts()
    const result = building.next()
    hasTexts ||= countTexts() !== before
    if (result.done === true) return yield* serializeInSteps(result.value, hasTexts ? replaceByTexts : JSON.stringify)
    yield
  }
}
