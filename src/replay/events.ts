/** Server-sent events end with an empty line, and `writeFrame` puts none inside one. */
const END = '\n\n'

/** How many events a text of whole events holds. Linear. */
export function countEvents(text: string): number {
  let count = 0
  for (let at = text.indexOf(END); at !== -1; at = text.indexOf(END, at + END.length)) count += 1
  return count
}

/** The text after its first `count` events; empty when it has no more than that. */
export function skipEvents(text: string, count: number): string {
  let at = 0
  for (let skipped = 0; skipped < count; skipped += 1) {
    const end = text.indexOf(END, at)
    if (end === -1) return ''
    at = end + END.length
  }
  return at === 0 ? text : text.slice(at)
}
