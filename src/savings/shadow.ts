import type { NanoUsd } from '../core/money.ts'
import type { Optimized } from './tier.ts'

/** What optimizing would have done to a request that was sent as it came. */
export interface ShadowRecord {
  readonly strategy: string
  readonly originalTokens: number
  readonly optimizedTokens: number
  /** Small-model calls: they were made, and count. */
  readonly spent: NanoUsd
}

/** Whether a request is one of the share that is only tried. `random` is from 0 up to 1, `share` from 0 to 1. */
export function isShadowed(share: number, random: number): boolean {
  return random < share
}

/** The outcome as it is sent (passthrough), and the record of what it would have been. */
export function shadow(optimized: Optimized): { readonly sent: Optimized; readonly record: ShadowRecord | undefined } {
  const { rewrite, ...others } = optimized
  if (rewrite === undefined) return { sent: optimized, record: undefined }
  const { tokens, spent } = optimized
  const record = { strategy: rewrite.strategy, originalTokens: tokens, optimizedTokens: rewrite.tokens, spent }
  return { sent: others, record }
}
