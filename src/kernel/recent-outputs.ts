const MAX_OUTPUTS = 20
const MAX_MODELS = 16
const MAX_KEYS = 4096

/**
 * The output tokens of the last answered requests of each key and model, from which the amounts of a stream are expected.
 * Each process has its own. All its maps have their least recently used entry first.
 */
export class RecentOutputs {
  readonly #modelsByKey = new Map<string, Map<string, number[]>>()

  /** Returns the numbers of the last requests, oldest first. */
  of(keyId: string, model: string): readonly number[] {
    return this.#modelsByKey.get(keyId)?.get(model) ?? []
  }

  record(keyId: string, model: string, outputTokens: number): void {
    const models = this.#modelsByKey.get(keyId) ?? new Map<string, number[]>()
    const outputs = models.get(model) ?? []
    if (outputs.push(outputTokens) > MAX_OUTPUTS) outputs.shift()
    models.delete(model)
    models.set(model, outputs)
    this.#modelsByKey.delete(keyId)
    this.#modelsByKey.set(keyId, models)
    if (models.size > MAX_MODELS) models.delete(models.keys().next().value ?? '')
    if (this.#modelsByKey.size > MAX_KEYS) this.#modelsByKey.delete(this.#modelsByKey.keys().next().value ?? '')
  }
}
