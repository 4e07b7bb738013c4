import { servesModel } from './access.ts'
import type { ProviderConfig } from './virtual-key.ts'

/**
 * The providers that serve a model for a key: first one drawn by weight, then the others as its fallbacks in falling
 * weight. A weight of 0 is a fallback only. `random` answers from 0 up to 1.
 */
export function weighProviders(
  configs: readonly ProviderConfig[],
  modelId: string,
  random: () => number,
): readonly ProviderConfig[] {
  const serving = configs.filter((config) => servesModel(config, modelId)).toSorted((a, b) => b.weight - a.weight)
  const first = draw(serving, random)
  return first === undefined ? [] : [first, ...serving.filter((config) => config !== first)]
}

function draw(configs: readonly ProviderConfig[], random: () => number): ProviderConfig | undefined {
  let left = random() * configs.reduce((sum, config) => sum + config.weight, 0)
  for (const config of configs) {
    if (left < config.weight) return config
    left -= config.weight
  }
  return configs[0]
}
