import * as z from 'zod/mini'
import type { Model } from '../core/model.ts'

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

/** A day as seconds since 1970. */
export function seconds(day: string): number {
  return Date.parse(day) / 1000
}

/** Prices that the operator read from a file; made by `priceList` of `sluice/providers`. */
export interface PriceList {
  /** Replaces the prices of a vendor's known models by those of the list, and adds the models that only the list has. */
  readonly over: (known: readonly KnownModel[], vendor: string) => readonly KnownModel[]
}

export const priceListSchema: z.ZodMiniType<PriceList> = z.custom<PriceList>(
  (value) => typeof value === 'object' && value !== null && 'over' in value,
  { error: 'expected the result of priceList()' },
)
