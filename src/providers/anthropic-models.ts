import type { Price } from '../core/money.ts'
import { seconds, type KnownModel } from './known-model.ts'

const CLAUDE_SMALL = 'claude-haiku-5-5'

const claude = (id: string, facts: Omit<KnownModel, 'id' | 'family'>): KnownModel => ({
  id,
  family: 'claude',
  ...(id === CLAUDE_SMALL ? {} : { small: CLAUDE_SMALL }),
  ...facts,
})

/** Writing to the cache costs a quarter more than input for 5 minutes, twice as much for an hour. */
const claudePrice = (input: number, output: number, cacheRead: number): Price => ({
  input,
  output,
  cacheRead,
  cacheWrite: 1.25 * input,
  cacheWrite1h: 2 * input,
})

/** From Opus 4.7 on: another tokenizer, about 30 percent more tokens for the same text, and no samplers. */
const CLAUDE_EFFORTS = ['low', 'medium', 'high', 'max'] as const
const newClaude = {
  contextWindow: 1_000_000,
  maxOutputTokens: 128_000,
  refusesSamplers: true,
  efforts: CLAUDE_EFFORTS,
} as const
const claude45 = { contextWindow: 200_000, maxOutputTokens: 64_000, refusesBothSamplers: true } as const

export const ANTHROPIC_MODELS: readonly KnownModel[] = [
  claude('claude-fable-5-1', {
    ...newClaude,
    displayName: 'Claude Fable 5.1',
    created: seconds('2026-09-01'),
    price: claudePrice(10, 50, 0.25),
    pricedAt: '2026-10-24',
  }),
  claude('claude-opus-5-5', {
    ...newClaude,
    displayName: 'Claude Opus 5.5',
    created: seconds('2026-09-22'),
    price: claudePrice(4, 20, 0.2),
    pricedAt: '2026-10-24',
  }),
  claude('claude-opus-5', {
    ...newClaude,
    displayName: 'Claude Opus 5',
    created: seconds('2026-07-24'),
    price: claudePrice(5, 25, 0.5),
    pricedAt: '2026-10-24',
  }),
  claude('claude-opus-4-8', {
    ...newClaude,
    displayName: 'Claude Opus 4.8',
    price: claudePrice(5, 25, 0.5),
    pricedAt: '2026-10-24',
  }),
  claude('claude-opus-4-7', {
    ...newClaude,
    displayName: 'Claude Opus 4.7',
    price: claudePrice(5, 25, 0.5),
    pricedAt: '2026-10-24',
  }),
  claude('claude-opus-4-6', {
    contextWindow: 1_000_000,
    maxOutputTokens: 128_000,
    refusesBothSamplers: true,
    efforts: CLAUDE_EFFORTS,
    displayName: 'Claude Opus 4.6',
    price: claudePrice(5, 25, 0.5),
    pricedAt: '2026-10-24',
  }),
  claude('claude-opus-4-5-20251101', {
    ...claude45,
    displayName: 'Claude Opus 4.5',
    created: seconds('2025-11-01'),
    price: claudePrice(5, 25, 0.5),
    pricedAt: '2026-10-24',
  }),
  claude('claude-sonnet-5-5', {
    ...newClaude,
    displayName: 'Claude Sonnet 5.5',
    created: seconds('2026-09-28'),
    price: claudePrice(2, 10, 0.1),
    pricedAt: '2026-10-24',
  }),
  claude('claude-sonnet-5', {
    ...newClaude,
    displayName: 'Claude Sonnet 5',
    created: seconds('2026-06-30'),
    price: claudePrice(2, 10, 0.2),
    pricedAt: '2026-10-24',
  }),
  claude('claude-sonnet-4-6', {
    contextWindow: 1_000_000,
    maxOutputTokens: 64_000,
    refusesBothSamplers: true,
    displayName: 'Claude Sonnet 4.6',
    price: claudePrice(3, 15, 0.3),
    pricedAt: '2026-10-24',
  }),
  claude('claude-sonnet-4-5-20250929', {
    ...claude45,
    displayName: 'Claude Sonnet 4.5',
    created: seconds('2025-09-29'),
    price: claudePrice(3, 15, 0.3),
    pricedAt: '2026-10-24',
  }),
  claude(CLAUDE_SMALL, {
    ...newClaude,
    displayName: 'Claude Haiku 5.5',
    created: seconds('2026-10-07'),
    withoutThinking: { thinking: { type: 'disabled' } },
    price: { ...claudePrice(0.1, 0.5, 0.01), long: { above: 100_000, ...claudePrice(0.5, 2.5, 0.05) } },
    pricedAt: '2026-10-24',
  }),
  claude('claude-haiku-4-5-20251001', {
    ...claude45,
    displayName: 'Claude Haiku 4.5',
    created: seconds('2025-10-15'),
    price: claudePrice(1, 5, 0.1),
    pricedAt: '2026-10-24',
  }),
  // Anthropic itself retired both on 2026-06-15; resellers may still serve them.
  claude('claude-opus-4-20250514', {
    contextWindow: 200_000,
    maxOutputTokens: 32_000,
    displayName: 'Claude Opus 4',
    created: seconds('2025-05-14'),
    price: claudePrice(15, 75, 1.5),
    pricedAt: '2026-06-15',
    retired: true,
  }),
  claude('claude-sonnet-4-20250514', {
    contextWindow: 200_000,
    maxOutputTokens: 64_000,
    displayName: 'Claude Sonnet 4',
    created: seconds('2025-05-14'),
    price: claudePrice(3, 15, 0.3),
    pricedAt: '2026-06-15',
    retired: true,
  }),
]
