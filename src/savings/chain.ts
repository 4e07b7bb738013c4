import { digestOf } from '../core/digest.ts'
import type { Message, Part, Source, TextSource } from '../core/prompt.ts'
import { sha256 } from '#hash'
import type { Unit } from './turns.ts'

/** Names the beginnings of a conversation: the same beginning has the same name on every turn, another never. */
export interface Chain {
  /** The name of the system prompt and the first `units` units: 64 hex digits. */
  at(units: number): string
}

/** Beginnings are hashed in links of about this many characters, counted from the oldest end. */
const LINK = 8000

/** SHA-256 over links: a turn hashes each character once, however many beginnings it asks for. */
export function createChain(system: readonly Message[], units: readonly Unit[]): Chain {
  const traces = units.map((unit) => unit.messages.map(traceOf).join('\u0001'))
  const links: { readonly units: number; readonly name: string }[] = []

  const build = (): void => {
    let name = sha256(system.map(traceOf).join('\u0001'))
    links.push({ units: 0, name })
    let held: string[] = []
    let length = 0
    for (const [index, trace] of traces.entries()) {
      held.push(trace)
      length += trace.length
      if (length < LINK) continue
      name = follow(name, held)
      links.push({ units: index + 1, name })
      held = []
      length = 0
    }
  }

  return {
    at(count) {
      if (links.length === 0) build()
      const link = links.findLast((one) => one.units <= count)
      if (link === undefined) return ''
      return link.units === count ? link.name : follow(link.name, traces.slice(link.units, count))
    },
  }
}

function follow(before: string, traces: readonly string[]): string {
  return sha256(`${before}\u0002${traces.join('\u0002')}`)
}

/** Everything of a message that a model sees, as one text. */
function traceOf(message: Message): string {
  return `${message.role}\u0003${message.parts.map(traceOfPart).join('\u0003')}`
}

function traceOfPart(part: Part): string {
  switch (part.type) {
    case 'text':
    case 'thinking':
      return `${part.type}\u0004${part.text}`
    case 'image':
    case 'document':
      return `${part.type}\u0004${traceOfSource(part.source)}`
    case 'tool-call':
      return `call\u0004${part.id}\u0004${part.name}\u0004${part.input}`
    case 'tool-result':
      return `result\u0004${part.callId}\u0004${part.content.map(traceOfPart).join('\u0005')}`
    case 'opaque':
      return `opaque\u0004${JSON.stringify(part.native.value)}`
  }
}

function traceOfSource(source: Source | TextSource): string {
  switch (source.type) {
    case 'base64':
      return digestOf(source, source.data, sha256)
    case 'url':
      return source.url
    case 'file':
      return source.id
    case 'text':
      return source.text
  }
}
