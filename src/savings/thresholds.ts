import type { TierJob, TierNumber } from './tier.ts'

/** Prompts of more tokens than this start a tier without a header. */
export interface Thresholds {
  /** Tier 2. @default 50_000 */
  readonly vanishing: number
  /** Tier 3. @default 80_000 */
  readonly recursive: number
  /** Tier 4. @default 20_000 */
  readonly family: number
}

export const DEFAULT_THRESHOLDS: Thresholds = { vanishing: 50_000, recursive: 80_000, family: 20_000 }

/** The thresholds for the job's model: `-optim` variants halve them. */
export function thresholdsFor(job: TierJob, thresholds: Thresholds): Thresholds {
  const factor = job.model.thresholdFactor ?? 1
  return {
    vanishing: thresholds.vanishing * factor,
    recursive: thresholds.recursive * factor,
    family: thresholds.family * factor,
  }
}

/** True when a header orders this tier: then it runs wherever it makes the prompt smaller. */
export function isOrdered({ wishes }: TierJob, tier: TierNumber): boolean {
  if (wishes.level !== undefined) return tier === 5
  return wishes.vanishing ? tier === 2 : wishes.recursive && tier === 3
}

/**
 * Whether a header or the size calls for one of the tiers 2, 3 and 4. A level leaves them out; after an ordered tier
 * that declined, the later ones are checked by size, tier 2 before an ordered tier 3 is not.
 */
export function isWanted(job: TierJob, tier: 2 | 3 | 4, thresholds: Thresholds): boolean {
  if (job.wishes.level !== undefined) return false
  if (isOrdered(job, tier)) return true
  const { vanishing, recursive, family } = thresholdsFor(job, thresholds)
  if (tier === 2) return !job.wishes.recursive && job.tokens > vanishing
  if (tier === 3) return job.wishes.recursive || job.tokens > recursive
  return job.tokens > family
}
