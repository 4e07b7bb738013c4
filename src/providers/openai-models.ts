import type { Price } from '../core/money.ts'
import { seconds, type KnownModel } from './known-model.ts'

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
  kind: 'chat',
  tokenizer: 'o200k',
  ...(id === GPT_SMALL ? {} : { small: GPT_SMALL }),
  ...facts,
})

const reasoning = { refusesSamplers: true, efforts: ['low', 'medium', 'high'] } as const
const wideGpt = { contextWindow: 1_050_000, maxOutputTokens: 128_000, ...reasoning } as const
const gpt5 = { contextWindow: 400_000, maxOutputTokens: 128_000, ...reasoning } as const
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
    imageTokens: 48_200,
    created: seconds('2024-07-18'),
    price: { input: 0.15, output: 0.6, cacheRead: 0.075 },
    pricedAt: '2026-09-26',
  }),
  gpt('o3', {
    contextWindow: 200_000,
    maxOutputTokens: 100_000,
    ...reasoning,
    displayName: 'o3',
    created: seconds('2025-04-16'),
    price: { input: 2, output: 8, cacheRead: 0.5 },
    pricedAt: '2026-03-31',
  }),
  gpt('o4-mini', {
    contextWindow: 200_000,
    maxOutputTokens: 100_000,
    ...reasoning,
    displayName: 'o4-mini',
    created: seconds('2025-04-16'),
    price: { input: 1.1, output: 4.4, cacheRead: 0.275 },
    pricedAt: '2026-03-31',
    retired: true,
  }),
]
