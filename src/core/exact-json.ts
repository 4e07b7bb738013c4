import { type JsonObject, parseObject } from './json.ts'

/** Finds numbers that parsing and serializing may change, such as `12345678901234567890`, `1e400`, `1.0` and `-0`. */
const MAY_CHANGE = /\d{16}|\d[eE]|\.\d*0(?!\d)|-0(?![.\d])/

const texts = new WeakMap<JsonObject, string>()
let textCount = 0

/** As `parseObject`. If a number may change, `serializeExactly` writes the object as its text. */
export function parseExactObject(text: string): JsonObject | undefined {
  const value = parseObject(text)
  if (value === undefined || !MAY_CHANGE.test(text)) return value
  texts.set(value, text.trim())
  textCount += 1
  return value
}

/** Serializes what `build` returns. Objects that `build` parses with `parseExactObject` keep their numbers. */
export function serializeExactly(build: () => JsonObject): string {
  const before = textCount
  const value = build()
  return textCount === before ? JSON.stringify(value) : replaceByTexts(value)
}

function replaceByTexts(value: JsonObject): string {
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
