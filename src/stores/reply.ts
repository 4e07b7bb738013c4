/** Reads a field of a script's reply; undefined when it is absent. */
export function fieldOf(reply: unknown, name: string): unknown {
  return typeof reply === 'object' && reply !== null ? Reflect.get(reply, name) : undefined
}

/** Reads a list. Lua does not distinguish an empty list from an empty table, which arrives as an object. */
export function listOf(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : []
}

export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : String(value ?? '')
}

/** Reads a number that a script wrote as text. */
export function numberOf(value: unknown): number {
  return Number(value ?? 0)
}
