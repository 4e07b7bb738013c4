import { notUnderstood, readFlag, type HeaderSource } from '../core/steering-headers.ts'
import type { SavingsLevel, Wishes } from './tier.ts'

/** The greatest number of tokens that a level of the slider sends. */
export const LEVEL_CAPS: Readonly<Record<Exclude<SavingsLevel, 'off'>, number>> = {
  extreme: 16_384,
  max: 32_768,
  med: 65_536,
  min: 131_072,
}

const LEVELS: readonly SavingsLevel[] = ['extreme', 'max', 'med', 'min', 'off']

/** Reads the three steering headers. Throws `invalid-request` with the header as `param` for a value that is not understood. */
export function readWishes(headers: HeaderSource): Wishes {
  const asked = headers.get('x-savings-level')
  const level = LEVELS.find((known) => known === asked?.trim().toLowerCase())
  if (asked !== null && level === undefined) {
    throw notUnderstood('X-Savings-Level', asked, `one of ${LEVELS.join(', ')}`)
  }
  return {
    ...(level !== undefined && { level }),
    vanishing: readFlag(headers, 'X-Vanishing-Context'),
    recursive: readFlag(headers, 'X-Svc-RLM'),
  }
}
