import { checkOptions, type OptionCheck, optionsOf } from '../../core/check-options.ts'
import type { Price } from '../../core/money.ts'
import type { Provider, Model } from '../../core/ports.ts'
import { checkPrice, checkProviderName } from '../../providers/provider-options.ts'

/** Options of `extractive()`. */
export interface ExtractiveOptions {
  /** @default 'extractive' */
  readonly name?: string | undefined
  /** Dollars per million tokens of `extractive`. @default { input: 0.5, output: 2 } */
  readonly price?: Price
  /** Dollars per million tokens of `extractive-small`. @default { input: 0.05, output: 0.2 } */
  readonly smallPrice?: Price
}

const checkExtractive: OptionCheck = optionsOf({
  name: checkProviderName,
  price: checkPrice,
  smallPrice: checkPrice,
} satisfies Record<keyof ExtractiveOptions, OptionCheck>)

/**
 * Creates an offline provider for tests and demonstrations. Answers usually consist of the sentences of the prompt that
 * best match the last question. Required tool calls and JSON schemas are filled from the last user message. The models
 * have list prices, so bills, budgets and savings work as with a real provider.
 *
 * Models: `extractive`, its small model `extractive-small`, and `extractive-embedding` (up to 1024 dimensions).
 *
 * @example
 * const gateway = createGateway({ providers: [extractive()] }) // extractive/extractive
 */
export function extractive(options: ExtractiveOptions = {}): Provider {
  checkOptions('extractive', options, checkExtractive)
  const { name = 'extractive', price, smallPrice } = options
  const models = [
    extractiveModel('extractive', price ?? { input: 0.5, output: 2 }, { small: 'extractive-small' }),
    extractiveModel('extractive-small', smallPrice ?? { input: 0.05, output: 0.2 }),
    extractiveModel('extractive-embedding', { input: 0.02, output: 0 }, { kind: 'embedding', maxOutputTokens: 0 }),
  ]
  return {
    name,
    dialect: 'chat',
    models,
    model: (id) => models.find((model) => model.id === id),
    async complete(call) {
      const { composeCompletion } = await import('./completion.ts')
      call.signal.throwIfAborted()
      return { response: await composeCompletion(call), ignored: [] }
    },
    async stream(call) {
      const { composeCompletion, streamCompletion } = await import('./completion.ts')
      call.signal.throwIfAborted()
      return { response: streamCompletion(await composeCompletion(call), call.signal), ignored: [] }
    },
    async embed(call) {
      const { embedOffline } = await import('./completion.ts')
      call.signal.throwIfAborted()
      return embedOffline(call)
    },
    ping: async () => {},
  }
}

export function extractiveModel(id: string, price: Price, fields: Partial<Model> = {}): Model {
  const size = { contextWindowTokens: 1_000_000, maxOutputTokens: 8192 }
  return { id, family: 'extractive', kind: 'chat', ...size, price, ...fields }
}
