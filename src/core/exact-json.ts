import { asArray, isJsonObject, type Json, type JsonObject, parseObject } from './json.ts'
import { elementTexts, endOfString, memberText, skipBlanks } from './splice-json.ts'

/** Finds numbers that parsing and serializing may change, such as `12345678901234567890`, `1e400`, `1.0` and `-0`. */
const MAY_CHANGE = /\d{16}|\d[eE]|\.\d*0(?!\d)|-0(?![.\d])/

const texts = new WeakMap<JsonObject, string>()
let textCount = 0

/** Returns the number of objects that `parseExactObject` has kept as text so far. */
export function countTexts(): number {
  return textCount
}

/** As `parseObject`. If a number may change, `serializeExactly` writes the object as its text. */
export function parseExactObject(text: string): JsonObject | undefined {
  const value = parseObject(text)
  if (value === undefined || !MAY_CHANGE.test(text)) return value
  texts.set(value, text.trim())
  textCount += 1
  return value
}

/**
 * Keeps the numbers of the objects at a path of a parsed text. The path has the names of members; all elements of an array
 * count.
 */
export function keepTexts(value: JsonObject, text: string | undefined, path: readonly string[]): void {
  if (text !== undefined && hasObject(value, path, 0) && MAY_CHANGE.test(text)) keepTextsAt(value, text, path, 0)
}

function hasObject(value: Json | undefined, path: readonly string[], depth: number): boolean {
  if (!isJsonObject(value)) return asArray(value).some((element) => hasObject(element, path, depth))
  const name = path[depth]
  return name === undefined || hasObject(value[name], path, depth + 1)
}

function keepTextsAt(value: Json | undefined, text: string | undefined, path: readonly string[], depth: number): void {
  if (text === undefined) return
  if (!isJsonObject(value)) {
    const elements = asArray(value)
    if (elements.length === 0) return
    const received = elementTexts(text)
    elements.forEach((element, index) => keepTextsAt(element, received?.[index], path, depth))
    return
  }
  const name = path[depth]
  if (name !== undefined) keepTextsAt(value[name], memberText(text, name), path, depth + 1)
  else if (MAY_CHANGE.test(text)) texts.set(value, withoutBlanks(text))
}

/** The bound on the tokens of a translated input does not count blanks, which the escapes of a string would double. */
function withoutBlanks(text: string): string {
  let compact = ''
  let start = 0
  for (let position = 0; position < text.length;) {
    if (text[position] === '"') position = endOfString(text, position)
    else if (text.charCodeAt(position) > 32) position++
    else {
      compact += text.slice(start, position)
      position = skipBlanks(text, position)
      start = position
    }
  }
  return compact + text.slice(start)
}

/** Serializes an object with the numbers that `parseExactObject` or `keepTexts` kept. */
export function exactText(value: Json): string {
  return keptText(value) ?? JSON.stringify(value)
}

/** Returns undefined for an object whose numbers are not kept. */
export function keptText(value: Json | undefined): string | undefined {
  return isJsonObject(value) ? texts.get(value) : undefined
}

/** Serializes what `build` returns. Objects that `build` parses with `parseExactObject` keep their numbers. */
export function serializeExactly(build: () => JsonObject): string {
  const before = textCount
  const value = build()
  return textCount === before ? JSON.stringify(value) : replaceByTexts(value)
}

/** Serializes a value that contains objects whose numbers are kept. */
export function replaceByTexts(value: Json): string {
  const mark = unusedMark(JSON.stringify(value))
  const inserted: string[] = []
  const marked = JSON.stringify(value, (_name, field: unknown) => {
    const text = typeof field === 'object' && field !== null ? texts.get(field as JsonObject) : undefined
    return text === undefined ? field : `${mark}${inserted.push(text) - 1}`
  })
  return marked.replace(new RegExp(`"${mark}(\\d+)"`, 'g'), (_match, index: string) => inserted[Number(index)] ?? '{}')
}

/** Returns a mark that the text does not contain. Takes linear time for any text. */
function unusedMark(text: string): string {
  const used = new Set(Array.from(text.matchAll(/@(\d{1,9}):/g), ([, number]) => Number(number)))
  let number = 0
  while (used.has(number)) number += 1
  return `@${number}:`
}
