import type { Span } from './prompt.ts'
import { asObject, isEscapedAt, parseJson } from './json.ts'

/** The raw JSON texts of new values. Undefined removes a member. */
export type RawChanges = Readonly<Record<string, string | undefined>>

/** A member of an object with the white space around it, or an element of an array. All offsets are in the text. */
interface Child {
  readonly start: number
  readonly end: number
  /** Undefined for an element. */
  readonly name: string | undefined
  readonly valueStart: number
  readonly valueEnd: number
}

/**
 * Replaces, removes and appends members of a JSON object, and keeps every other byte. Serializing the parsed object
 * would change numbers such as `12345678901234567890` and `0.10`. `text` must be valid JSON.
 *
 * Returns undefined if the text is not an object, or if it repeats a key.
 */
export function replaceMembers(text: string, changes: RawChanges): string | undefined {
  const members = childrenOf(text, '{')
  if (members === undefined) return undefined
  const names = new Set(members.map(({ name }) => name))
  if (names.size < members.length) return undefined
  const kept = members.flatMap(({ start, end, name = '', valueStart, valueEnd }) => {
    if (!Object.hasOwn(changes, name)) return [text.slice(start, end)]
    const value = changes[name]
    return value === undefined ? [] : [text.slice(start, valueStart) + value + text.slice(valueEnd, end)]
  })
  for (const [name, value] of Object.entries(changes)) {
    if (value !== undefined && !names.has(name)) kept.push(`${JSON.stringify(name)}:${value}`)
  }
  const head = text.slice(0, members[0]?.start ?? text.indexOf('{') + 1)
  return head + kept.join(',') + text.slice(members.at(-1)?.end ?? text.lastIndexOf('}'))
}

/** Serializes the object first if it repeats a key. Text that is not an object counts as an object without members. */
export function setMembers(text: string, changes: RawChanges): string {
  const changed = replaceMembers(text, changes)
  if (changed !== undefined) return changed
  return replaceMembers(JSON.stringify(asObject(parseJson(text)) ?? {}), changes) ?? '{}'
}

/** Returns the text of a member's value, or undefined if the text is not an object with this member. */
export function memberText(text: string, name: string): string | undefined {
  const span = memberSpan(text, name)
  return span && text.slice(span.start, span.end)
}

/** Returns the position of a member's value, or undefined if the text is not an object with this member. */
export function memberSpan(text: string, name: string): Span | undefined {
  const member = childrenOf(text, '{')?.findLast((child) => child.name === name)
  return member && { start: member.valueStart, end: member.valueEnd }
}

/** Returns the texts of an array's elements, or undefined if the text is not an array. */
export function elementTexts(text: string): readonly string[] | undefined {
  return childrenOf(text, '[')?.map(({ valueStart, valueEnd }) => text.slice(valueStart, valueEnd))
}

function childrenOf(text: string, bracket: '{' | '['): readonly Child[] | undefined {
  let position = skipBlanks(text, 0)
  if (text[position] !== bracket) return undefined
  const children: Child[] = []
  position++
  for (;;) {
    const start = position
    let valueStart = skipBlanks(text, start)
    if (children.length === 0 && isClosing(text[valueStart])) return children
    let name: string | undefined
    if (bracket === '{') {
      const nameEnd = endOfString(text, valueStart)
      name = JSON.parse(text.slice(valueStart, nameEnd)) as string
      valueStart = skipBlanks(text, skipBlanks(text, nameEnd) + 1)
    }
    const valueEnd = endOfValue(text, valueStart)
    const end = skipBlanks(text, valueEnd)
    children.push({ start, end, name, valueStart, valueEnd })
    if (text[end] !== ',') return children
    position = end + 1
  }
}

function isClosing(character: string | undefined): boolean {
  return character === '}' || character === ']'
}

export function skipBlanks(text: string, start: number): number {
  let position = start
  while (position < text.length && text.charCodeAt(position) <= 32) position++
  return position
}

/** Returns the index after the closing quote. */
export function endOfString(text: string, start: number): number {
  let quote = text.indexOf('"', start + 1)
  while (quote !== -1 && isEscapedAt(text, quote, start)) quote = text.indexOf('"', quote + 1)
  return quote === -1 ? text.length : quote + 1
}

const QUOTE = 34
const COMMA = 44
/** The brackets and braces differ in one bit: `[` from `{`, and `]` from `}`. */
const BRACE_BIT = 32
const OPEN = 123
const CLOSE = 125

function endOfValue(text: string, start: number): number {
  let depth = 0
  let position = start
  while (position < text.length) {
    const unit = text.charCodeAt(position)
    if (unit === QUOTE) {
      position = endOfString(text, position)
      if (depth === 0) return position
      continue
    }
    if ((unit | BRACE_BIT) === OPEN) depth++
    else if ((unit | BRACE_BIT) === CLOSE) {
      if (depth === 0) return position
      if (--depth === 0) return position + 1
    } else if (depth === 0 && (unit === COMMA || unit <= 32)) return position
    position++
  }
  return position
}
