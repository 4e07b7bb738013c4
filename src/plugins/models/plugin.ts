import type { BuiltInPlugin } from '../../kernel/services.ts'
import type { ListedRoute } from './models.ts'

/** Lists the models that a key may use. */
export function modelsPlugin(list: () => readonly ListedRoute[]): BuiltInPlugin {
  return {
    endpoints: async (services) => (await import('./models.ts')).modelEndpoints(list(), services),
  }
}
