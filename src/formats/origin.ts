import type { GatewayError } from '../core/errors.ts'
import type { Json } from '../core/json.ts'
import type { Prompt } from '../core/prompt.ts'

/** Something that a prompt says in its own dialect alone, and that cannot be left out without changing what was asked. */
export interface Obstacle {
  /** The caller's field. */
  readonly param: string
  /** Completes "… cannot be sent": `this field`, `a web_search block`. */
  readonly what: string
  readonly details?: Json
  /** True for what is refused even where a prompt may lose something: it is the conversation itself. */
  readonly isEssential?: boolean
}

/** What a prompt says beyond the canonical form. */
export interface Beyond {
  /** Fields that only steer: an answer without them is still the answer that was asked for. */
  readonly hints: readonly string[]
  /** Required parts that another dialect cannot express, in the order of the body. */
  readonly obstacles: Iterable<Obstacle>
}

/**
 * What the writers of all other dialects must know of a prompt's own dialect. Each dialect answers for itself, so that
 * N dialects need N origins and no writer knows the fields of another dialect.
 */
export interface Origin {
  readonly beyond: (prompt: Prompt) => Beyond
  /** Where the caller looks for message `index`: `messages[3]`. */
  readonly pathOf: (prompt: Prompt, index: number) => string
  /** What the caller calls a setting, for errors and the names of hints. */
  readonly names: Readonly<Record<'shape' | 'effort' | 'stop', string>>
}

/** The names of what is left out of a translated prompt. Throws what `refuse` makes of the first thing that must not be. */
export function leftOut(
  prompt: Prompt,
  { hints, obstacles }: Beyond,
  refuse: (obstacle: Obstacle) => GatewayError,
): readonly string[] {
  const names = [...hints]
  for (const obstacle of obstacles) {
    if (prompt.isLossy !== true || obstacle.isEssential === true) throw refuse(obstacle)
    names.push(obstacle.param)
  }
  return [...new Set(names)]
}

/** Absent, null, switched off or empty: a field that asks for nothing. */
export function isSilent(value: Json | undefined): boolean {
  return value === undefined || value === null || value === false || (Array.isArray(value) && value.length === 0)
}
