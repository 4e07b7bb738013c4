import type { Model } from '../core/model.ts'
import type { Price } from '../core/money.ts'

/**
 * Facts about current models as their vendors published them. `pricedAt` is the day on which the price was last seen in
 * public, which is not a promise that it holds today: check the vendor's page, and override what differs by the options
 * `models` of a provider or `catalog.models` of the gateway.
 */
export interface KnownModel extends Model {
  readonly pricedAt: string
  /** No longer offered by the vendor itself: still resolved, where someone else serves it, but not listed. */
  readonly retired?: true
}

/** What a stand-in name means: see `CatalogAlias` in catalog.ts. */
export interface KnownAlias extends Pick<Model, 'contextWindow' | 'defaults' | 'thresholdFactor' | 'displayName'> {
  readonly id: string
  readonly target: string
}

const seconds = (day: string): number => Date.parse(day) / 1000

// ─── OpenAI ──────────────────────────────────────────────────────────────────

const GPT_SMALL = 'gpt-6-luna'

/** Above 272,000 prompt tokens input and cache cost twice as much, the answer half as much again. */
function withLongGpt(price: Price): Price {
  const { input, output, cacheRead = input, cacheWrite } = price
  return {
    ...price,
    long: {
      above: 272_000,
      input: 2 * input,
      output: 1.5 * output,
      cacheRead: 2 * cacheRead,
      ...(cacheWrite !== undefined && { cacheWrite: 2 * cacheWrite }),
    },
  }
}

const gpt = (id: string, facts: Omit<KnownModel, 'id' | 'family'>): KnownModel => ({
  id,
  family: 'gpt',
  ...(id === GPT_SMALL ? {} : { small: GPT_SMALL }),
  ...facts,
})

const wideGpt = { contextWindow: 1_050_000, maxOutputTokens: 128_000, refusesSamplers: true } as const
const gpt5 = { contextWindow: 400_000, maxOutputTokens: 128_000, refusesSamplers: true } as const
const gpt41 = { contextWindow: 1_047_576, maxOutputTokens: 32_768 } as const
const gpt4o = { contextWindow: 128_000, maxOutputTokens: 16_384 } as const

export const OPENAI_MODELS: readonly KnownModel[] = [
  gpt('gpt-6.1-sol', {
    ...wideGpt,
    displayName: 'GPT-6.1 Sol',
    created: seconds('2026-09-29'),
    price: withLongGpt({ input: 2, output: 10, cacheRead: 0.1, cacheWrite: 2.5 }),
    pricedAt: '2026-10-16',
  }),
  gpt('gpt-6.1-terra', {
    ...wideGpt,
    displayName: 'GPT-6.1 Terra',
    created: seconds('2026-10-26'),
    price: withLongGpt({ input: 1, output: 5, cacheRead: 0.05, cacheWrite: 1.25 }),
    pricedAt: '2026-10-27',
  }),
  gpt('gpt-6-astra', {
    ...wideGpt,
    displayName: 'GPT-6 Astra',
    created: seconds('2026-09-03'),
    price: withLongGpt({ input: 10, output: 50, cacheRead: 1 }),
    pricedAt: '2026-10-16',
  }),
  gpt('gpt-6-sol', {
    ...wideGpt,
    displayName: 'GPT-6 Sol',
    created: seconds('2026-09-22'),
    price: withLongGpt({ input: 2, output: 10, cacheRead: 0.2, cacheWrite: 2.5 }),
    pricedAt: '2026-10-16',
  }),
  gpt(GPT_SMALL, {
    ...wideGpt,
    displayName: 'GPT-6 Luna',
    created: seconds('2026-09-22'),
    withoutThinking: { reasoning_effort: 'none' },
    price: withLongGpt({ input: 0.1, output: 0.5, cacheRead: 0.01, cacheWrite: 0.125 }),
    pricedAt: '2026-10-16',
  }),
  gpt('gpt-5.6-sol', {
    ...wideGpt,
    displayName: 'GPT-5.6 Sol',
    created: seconds('2026-07-09'),
    price: withLongGpt({ input: 4, output: 20, cacheRead: 0.4 }),
    pricedAt: '2026-10-16',
  }),
  gpt('gpt-5.6-terra', {
    ...wideGpt,
    displayName: 'GPT-5.6 Terra',
    created: seconds('2026-07-09'),
    price: withLongGpt({ input: 2, output: 12, cacheRead: 0.2 }),
    pricedAt: '2026-10-27',
  }),
  gpt('gpt-5.6-luna', {
    ...wideGpt,
    displayName: 'GPT-5.6 Luna',
    created: seconds('2026-07-09'),
    price: withLongGpt({ input: 0.2, output: 1.2, cacheRead: 0.02 }),
    pricedAt: '2026-10-16',
  }),
  gpt('gpt-5.5', {
    ...wideGpt,
    displayName: 'GPT-5.5',
    price: withLongGpt({ input: 5, output: 30, cacheRead: 0.5 }),
    pricedAt: '2026-09-05',
  }),
  gpt('gpt-5.4', {
    ...wideGpt,
    displayName: 'GPT-5.4',
    price: withLongGpt({ input: 2.5, output: 15, cacheRead: 0.25 }),
    pricedAt: '2026-09-05',
  }),
  gpt('gpt-5.4-mini', {
    ...gpt5,
    displayName: 'GPT-5.4 mini',
    price: { input: 0.75, output: 4.5, cacheRead: 0.075 },
    pricedAt: '2026-09-05',
  }),
  gpt('gpt-5.4-nano', {
    ...gpt5,
    displayName: 'GPT-5.4 nano',
    price: { input: 0.2, output: 1.25, cacheRead: 0.02 },
    pricedAt: '2026-09-05',
  }),
  gpt('gpt-5.2', {
    ...gpt5,
    displayName: 'GPT-5.2',
    price: { input: 1.75, output: 14, cacheRead: 0.175 },
    pricedAt: '2026-09-05',
  }),
  gpt('gpt-5.1', {
    ...gpt5,
    displayName: 'GPT-5.1',
    created: seconds('2025-11-13'),
    price: { input: 1.25, output: 10, cacheRead: 0.125 },
    pricedAt: '2026-09-05',
  }),
  gpt('gpt-5', {
    ...gpt5,
    displayName: 'GPT-5',
    created: seconds('2025-08-07'),
    price: { input: 1.25, output: 10, cacheRead: 0.125 },
    pricedAt: '2026-09-05',
  }),
  gpt('gpt-5-mini', {
    ...gpt5,
    displayName: 'GPT-5 mini',
    created: seconds('2025-08-07'),
    price: { input: 0.25, output: 2, cacheRead: 0.025 },
    pricedAt: '2026-09-05',
  }),
  gpt('gpt-5-nano', {
    ...gpt5,
    displayName: 'GPT-5 nano',
    created: seconds('2025-08-07'),
    price: { input: 0.05, output: 0.4, cacheRead: 0.005 },
    pricedAt: '2026-09-05',
  }),
  gpt('gpt-4.1', {
    ...gpt41,
    displayName: 'GPT-4.1',
    created: seconds('2025-04-14'),
    price: { input: 2, output: 8, cacheRead: 0.5 },
    pricedAt: '2026-03-31',
  }),
  gpt('gpt-4.1-mini', {
    ...gpt41,
    displayName: 'GPT-4.1 mini',
    created: seconds('2025-04-14'),
    price: { input: 0.4, output: 1.6, cacheRead: 0.1 },
    pricedAt: '2026-03-31',
  }),
  gpt('gpt-4.1-nano', {
    ...gpt41,
    displayName: 'GPT-4.1 nano',
    created: seconds('2025-04-14'),
    price: { input: 0.1, output: 0.4, cacheRead: 0.025 },
    pricedAt: '2026-03-31',
    retired: true,
  }),
  gpt('gpt-4o', {
    ...gpt4o,
    displayName: 'GPT-4o',
    created: seconds('2024-05-13'),
    price: { input: 2.5, output: 10, cacheRead: 1.25 },
    pricedAt: '2026-06-12',
  }),
  gpt('gpt-4o-mini', {
    ...gpt4o,
    displayName: 'GPT-4o mini',
    created: seconds('2024-07-18'),
    price: { input: 0.15, output: 0.6, cacheRead: 0.075 },
    pricedAt: '2026-09-26',
  }),
  gpt('o3', {
    contextWindow: 200_000,
    maxOutputTokens: 100_000,
    refusesSamplers: true,
    displayName: 'o3',
    created: seconds('2025-04-16'),
    price: { input: 2, output: 8, cacheRead: 0.5 },
    pricedAt: '2026-03-31',
  }),
  gpt('o4-mini', {
    contextWindow: 200_000,
    maxOutputTokens: 100_000,
    refusesSamplers: true,
    displayName: 'o4-mini',
    created: seconds('2025-04-16'),
    price: { input: 1.1, output: 4.4, cacheRead: 0.275 },
    pricedAt: '2026-03-31',
    retired: true,
  }),
]

// ─── Anthropic ───────────────────────────────────────────────────────────────

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
const newClaude = { contextWindow: 1_000_000, maxOutputTokens: 128_000, refusesSamplers: true, tokenFactor: 2 } as const
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

// ─── The message gateway's own identifiers ───────────────────────────────────

const messageDefaults = { temperature: 0.7, topP: 0.9 } as const

/**
 * The identifiers of the message gateway's model table. Their targets are the models of the same name; Anthropic has
 * retired Sonnet 4 and Opus 4, so an operator of its API points these names elsewhere by `catalog.aliases`.
 * There was never a Haiku 4 of that date: the name stands for Haiku 4.5.
 */
export const KNOWN_ALIASES: readonly KnownAlias[] = [
  {
    id: 'model-sonnet-4-20250514',
    target: 'anthropic/claude-sonnet-4-20250514',
    contextWindow: 200_000,
    defaults: messageDefaults,
  },
  {
    id: 'model-sonnet-4-20250514-optim',
    target: 'anthropic/claude-sonnet-4-20250514',
    contextWindow: 128_000,
    defaults: messageDefaults,
    thresholdFactor: 0.5,
  },
  {
    id: 'model-haiku-4-20250514',
    target: 'anthropic/claude-haiku-4-5-20251001',
    contextWindow: 128_000,
    defaults: messageDefaults,
  },
  {
    id: 'model-opus-4-20250514',
    target: 'anthropic/claude-opus-4-20250514',
    contextWindow: 200_000,
    defaults: messageDefaults,
  },
]

// ─── Families ────────────────────────────────────────────────────────────────

/** Beginnings of model ids, of the last part where an id has slashes, and the family they belong to. */
export const FAMILY_PREFIXES: readonly (readonly [prefix: string, family: string])[] = [
  ['claude', 'claude'],
  ['gpt', 'gpt'],
  ['chatgpt', 'gpt'],
  ['o1', 'gpt'],
  ['o3', 'gpt'],
  ['o4', 'gpt'],
  ['gemini', 'gemini'],
  ['gemma', 'gemini'],
  ['llama', 'llama'],
  ['meta-llama', 'llama'],
  ['mistral', 'mistral'],
  ['ministral', 'mistral'],
  ['mixtral', 'mistral'],
  ['magistral', 'mistral'],
  ['codestral', 'mistral'],
  ['devstral', 'mistral'],
  ['pixtral', 'mistral'],
  ['qwen', 'qwen'],
  ['qwq', 'qwen'],
  ['deepseek', 'deepseek'],
  ['command', 'command'],
  ['grok', 'grok'],
  ['extractive', 'extractive'],
]

/** The family of a model id, or undefined for an unknown one. */
export function familyOf(id: string): string | undefined {
  const name = id.slice(id.lastIndexOf('/') + 1).toLowerCase()
  return FAMILY_PREFIXES.find(([prefix]) => name.startsWith(prefix))?.[1]
}
