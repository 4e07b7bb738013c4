import { decodeUtf8, parseJsonText } from '../core/http.ts'
import type { Span } from '../core/prompt.ts'
import type { JsonCut } from './scan-json.ts'

/**
 * Joins the parts of a JSON text that is cut at commas. Each part is completed with the brackets that are open at its
 * beginning and at its end. Their first and last elements are placeholders, so that a part is valid only if the text
 * around the comma is.
 */
export class PartJoiner {
  readonly #bytes: Uint8Array
  readonly #first: string
  readonly #last: string
  #open: readonly JsonContainer[] = []
  value: unknown = undefined

  /** @param placeholder A random name without characters that JSON escapes. */
  constructor(bytes: Uint8Array, placeholder: string) {
    this.#bytes = bytes
    this.#first = `${placeholder}<`
    this.#last = `${placeholder}>`
  }

  add(text: string, cut: JsonCut | undefined): void {
    const start = this.#open.map((container) => (Array.isArray(container) ? '[' : `{"${this.#first}":`)).join('')
    const end = cut === undefined ? '' : this.#closingOf(cut)
    const part = parseJsonText(`${start}${start === '' ? '' : '0,'}${text}${end}`, true)
    if (this.#open.length === 0) this.value = part
    else this.#append(part)
    if (cut !== undefined) this.#open = this.#containersAt(cut)
  }

  #closingOf({ path }: JsonCut): string {
    const brackets = path.map((key) => (key === undefined ? ']' : '}')).toReversed()
    return `,${path.at(-1) === undefined ? '' : `"${this.#last}":`}0${brackets.join('')}`
  }

  #append(part: unknown): void {
    let rest = part
    for (const container of this.#open) {
      if (Array.isArray(container) && Array.isArray(rest)) {
        for (let index = 1; index < rest.length; index++) container.push(rest[index])
        rest = rest[0]
      } else if (!Array.isArray(container) && isContainer(rest) && !Array.isArray(rest)) {
        for (const name in rest) if (name !== this.#first && name !== this.#last) setMember(container, name, rest[name])
        rest = rest[this.#first]
      }
    }
  }

  /** Also removes the placeholder at the end of the innermost container. */
  #containersAt({ keptDepth, path }: JsonCut): readonly JsonContainer[] {
    const open = this.#open.slice(0, keptDepth)
    let inner: unknown = open.at(-1)
    if (open.length === 0) inner = this.value
    for (let depth = open.length; depth < path.length; depth++) {
      if (depth > 0) inner = this.#lastOf(open[depth - 1], path[depth - 1])
      if (isContainer(inner)) open.push(inner)
    }
    const innermost = open.at(-1)
    if (Array.isArray(innermost)) innermost.pop()
    else if (innermost !== undefined) delete innermost[this.#last]
    return open
  }

  #lastOf(container: JsonContainer | undefined, key: Span | undefined): unknown {
    if (Array.isArray(container)) return container.at(-1)
    const name = key && parseJsonText(`"${decodeUtf8(this.#bytes.subarray(key.start, key.end))}"`, true)
    return typeof name === 'string' ? container?.[name] : undefined
  }
}

type JsonContainer = unknown[] | Record<string, unknown>

function isContainer(value: unknown): value is JsonContainer {
  return typeof value === 'object' && value !== null
}

/** An assignment to `__proto__` would set the prototype. */
function setMember(container: Record<string, unknown>, name: string, value: unknown): void {
  if (name !== '__proto__') container[name] = value
  else Object.defineProperty(container, name, { value, writable: true, enumerable: true, configurable: true })
}
