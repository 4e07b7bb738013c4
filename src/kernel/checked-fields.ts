import type { NanoUsd, Price, ServiceTiers, Usage } from '../core/money.ts'
import type { Route } from '../core/ports.ts'

/** What fields of the request may add to its price. */
export interface CheckedFields {
  /** Adds a route for each model that the vendor may call for the request besides its own, at its own price. */
  withOtherModels(routes: readonly Route[]): readonly Route[]
  /** Returns the dearest price of the model that may apply. */
  dearestPrice(route: Route): Price
  /** Returns the price at the tiers that the response reports, or the dearest one if it does not report a requested tier. */
  priceOf(route: Route, tiers: ServiceTiers | undefined): Price
  /** Returns the cost of the tokens of other models, less the cost of these tokens at the price of the requested model. */
  costOfOtherModels(route: Route, usage: Usage): NanoUsd
}
