/**
 * More vendors, and price lists from a file.
 *
 * ```ts
 * import { createGateway } from 'sluice'
 * import { gemini, groq } from 'sluice/providers'
 *
 * const gateway = createGateway({ providers: [gemini(), groq()] })
 * ```
 *
 * @module
 */
export {
  cerebras,
  deepseek,
  fireworks,
  groq,
  lmStudio,
  mistral,
  ollama,
  openrouter,
  together,
  vllm,
  xai,
  type VendorProvider,
} from './providers/vendors.ts'
export { azureOpenai, type AzureOpenaiOptions } from './providers/vendors.ts'
export { bedrock, type AwsCredentials, type BedrockOptions } from './providers/clouds.ts'
export { gemini, vertex, type VertexOptions } from './providers/clouds.ts'
export { priceList, type PriceListOptions } from './providers/price-list.ts'
export type { PriceList } from './providers/models.ts'
export type { SignRequest } from './providers/http-request.ts'
export type { ApiKey, VendorOptions } from './providers/vendor.ts'
