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
  /** The models of a vendor, by the name of its provider. */
  readonly modelsOf: (vendor: string) => readonly KnownModel[]
}

export const priceListSchema: z.ZodMiniType<PriceList> = z.custom<PriceList>(
  (value) => typeof value === 'object' && value !== null && 'modelsOf' in value,
  { error: 'expected what priceList(…) of sluice/providers returns' },
)

/** Replaces the prices of known models by those of a list, and adds the models that only the list has. */
export function withPrices(
  known: readonly KnownModel[],
  prices: PriceList | undefined,
  vendor: string,
): readonly KnownModel[] {
  const byId = new Map(known.map((model) => [model.id, model]))
  for (const model of prices?.modelsOf(vendor) ?? []) {
    byId.set(model.id, { ...model, ...byId.get(model.id), price: model.price, pricedAt: model.pricedAt })
  }
  return [...byId.values()]
}
