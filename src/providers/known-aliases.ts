import type { Model } from '../core/model.ts'

/** What a stand-in name means: see `CatalogAlias` in catalog.ts. */
export interface KnownAlias extends Pick<Model, 'contextWindow' | 'defaults' | 'thresholdFactor' | 'displayName'> {
  readonly id: string
  readonly target: string
}

const messageDefaults = { temperature: 0.7, topP: 0.9 } as const

/**
 * The identifiers of the message gateway's model table. Their targets are the models of the same name; Anthropic has
 * retired Sonnet 4 and Opus 4, so an operator of its API points these names elsewhere by `catalog.aliases`.
 * There was never a Haiku 4 of that date: the name is an alias of Haiku 4.5.
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
