/**
 * The types of a savings tier of your own, for `savings: { tiers }`. See docs/tiers/README.md.
 *
 * @module
 */
export type {
  KeptEvidence,
  Rewrite,
  SavingsLevel,
  Steering,
  Thresholds,
  Tier,
  TierForecast,
  TierJob,
  TierNumber,
  TierResult,
} from './savings/tier.ts'
export type { Conversation, PrefixHashes } from './savings/conversation.ts'
export type { SmallModel } from './savings/models.ts'
export type { Similarities } from './savings/similarities.ts'
export type { MinTarget, SliderMode } from './savings/selection-tiers.ts'
export type { Segment, SplitConversation } from './savings/segments.ts'
export type { Block, Snapshot } from './savings/snapshot.ts'
export { toNanoUsd, type NanoUsd } from './core/money.ts'
