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
} from './plugins/savings/tier.ts'
export type { Conversation, PrefixHashes } from './plugins/savings/conversation.ts'
export type { SmallModel } from './core/ports.ts'
export type { Similarities } from './plugins/savings/similarities.ts'
export type { MinTarget, SliderMode } from './plugins/savings/selection-tiers.ts'
export type { Segment, SplitConversation } from './plugins/savings/segments.ts'
export type { Block, Snapshot } from './plugins/savings/snapshot.ts'
export { toNanoUsd, type NanoUsd } from './core/money.ts'
