/** Which tiers a header or the size of the prompt selects. */
import type { TierJob, Thresholds, TierNumber } from './tier.ts'

export function thresholdsFor({ model }: Pick<TierJob, 'model'>, thresholds: Thresholds): Thresholds {
  const factor = model.thresholdFactor ?? 1
  return {
    vanishing: thresholds.vanishing * factor,
    recursive: thresholds.recursive * factor,
    family: thresholds.family * factor,
  }
}

/** Returns true for the tier that a header requests. Without `force`, it runs unless sending everything is cheaper. */
export function isRequestedByHeader({ steering }: TierJob, tier: TierNumber): boolean {
  if (steering.level !== undefined) return tier === 5
  return steering.vanishing ? tier === 2 : steering.recursive && tier === 3
}

export function isWanted(job: TierJob, tier: 2 | 3 | 4, thresholds: Thresholds): boolean {
  if (job.steering.level !== undefined) return false
  if (isRequestedByHeader(job, tier)) return true
  const { vanishing, recursive, family } = thresholdsFor(job, thresholds)
  if (tier === 2) return !job.steering.recursive && job.tokens > vanishing
  if (tier === 3) return job.steering.recursive || job.tokens > recursive
  return job.tokens > family
}
