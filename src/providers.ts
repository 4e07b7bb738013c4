export {
  cerebras,
  deepseek,
  fireworks,
  groq,
  lmStudio,
  mistral,
  ollama,
  openrouter,
  priceList,
  together,
  vllm,
  xai,
  type PriceListOptions,
  type VendorProvider,
} from './providers/vendors.ts'
export { azureOpenai, gemini, vertex, type AzureOpenaiOptions, type VertexOptions } from './providers/clouds.ts'
export type { PriceList, VendorOptions } from './providers/vendor.ts'
export type { SignRequest } from './providers/http-request.ts'
export type { ApiKey } from './providers/provider-options.ts'
export type { UpstreamCaller } from './core/ports.ts'
