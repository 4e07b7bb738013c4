import { seconds, type KnownModel } from './known-model.ts'

const embedding = (
  id: string,
  facts: Pick<KnownModel, 'displayName' | 'created' | 'price' | 'pricedAt'>,
): KnownModel => ({
  id,
  family: 'gpt',
  kind: 'embedding',
  tokenizer: 'cl100k',
  contextWindow: 8192,
  maxOutputTokens: 0,
  ...facts,
})

/** They embed and never answer: only what goes in has a price. */
export const OPENAI_EMBEDDING_MODELS: readonly KnownModel[] = [
  embedding('text-embedding-3-small', {
    displayName: 'text-embedding-3-small',
    created: seconds('2024-01-25'),
    price: { input: 0.02, output: 0 },
    pricedAt: '2026-07-03',
  }),
  embedding('text-embedding-3-large', {
    displayName: 'text-embedding-3-large',
    created: seconds('2024-01-25'),
    price: { input: 0.13, output: 0 },
    pricedAt: '2026-07-03',
  }),
]
