import { GatewayError } from '../core/errors.ts'
import type { SavingsLevel, Wishes } from './tier.ts'

/** The greatest number of tokens that a level of the slider sends. */
export const LEVEL_CAPS: Readonly<Record<Exclude<SavingsLevel, 'off'>, number>> = {
  extreme: 16_384,
  max: 32_768,
  med: 65_536,
  min: 131_072,
}

const LEVELS: readonly SavingsLevel[] = ['extreme', 'max', 'med', 'min', 'off']
const LONGEST_ECHO = 40

/**
 * Reads the three steering headers. A level of any spelling in upper or lower case; the two others mean yes only when
 * they say `true`.
 *
 * @throws `invalid-request` with param `X-Savings-Level` for an unknown level.
 */
export function readWishes(headers: { get(name: string): string | null }): Wishes {
  const asked = headers.get('x-savings-level')?.trim()
  const level = LEVELS.find((known) => known === asked?.toLowerCase())
  if (asked !== undefined && level === undefined) {
    throw new GatewayError(
      'invalid-request',
      `X-Savings-Level is "${printable(asked)}"; expected one of ${LEVELS.join(', ')}. Leave the header out for the automatic choice.`,
      { param: 'X-Savings-Level' },
    )
  }
  return {
    ...(level !== undefined && { level }),
    vanishing: isTrue(headers.get('x-vanishing-context')),
    recursive: isTrue(headers.get('x-svc-rlm')),
  }
}

function isTrue(value: string | null): boolean {
  return value?.trim().toLowerCase() === 'true'
}

function printable(text: string): string {
  return text.replace(/[^\x20-\x7e]/g, '?').slice(0, LONGEST_ECHO)
}
