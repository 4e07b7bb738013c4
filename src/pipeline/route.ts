import type { Model } from '../core/model.ts'
import type { Provider } from '../core/ports.ts'

/** One place that can answer a request. */
export interface Route {
  readonly provider: Provider
  readonly model: Model
}
