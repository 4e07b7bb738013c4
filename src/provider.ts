/**
 * The types of a provider of your own, and of the prompts and completions that it exchanges with the gateway.
 * See docs/guides/write-a-provider.md.
 *
 * @module
 */
export type {
  EmbedCall,
  EmbedInput,
  Embedding,
  EmbeddingRequest,
  EmbeddingResult,
  Encoding,
  Model,
  PassthroughResponse,
  PassthroughCall,
  Provider,
  ProviderResponse,
  ProviderCall,
  Runtime,
  StoredResponseCall,
  Timeouts,
  Transport,
  TransportCall,
  TransportHandler,
  TransportRequest,
  UpstreamCaller,
  Vocabulary,
} from './core/ports.ts'
export type {
  ResponseShape,
  Dialect,
  DocumentPart,
  ImagePart,
  Message,
  Native,
  Part,
  Prompt,
  ReceivedBody,
  Role,
  Settings,
  Source,
  Span,
  TextPart,
  TextSource,
  ThinkingPart,
  Tool,
  ToolCallPart,
  ToolChoice,
  ToolResultPart,
  UpstreamDialect,
} from './core/prompt.ts'
export {
  toStreamChunks,
  type ResponseSource,
  type CanForward,
  type Completion,
  type FinishReason,
  type SourceReceiver,
  type SseEvent,
  type StreamChunk,
  type StreamFormat,
  type StreamPart,
  type StreamReader,
} from './core/completion.ts'
export type { ByteSearch } from './core/byte-search.ts'
export type { Cancellation, MaybePromise } from './core/async.ts'
export type { Json, JsonObject } from './core/json.ts'
export {
  NO_USAGE,
  type LongPrice,
  type ModelTokens,
  type Price,
  type ServiceTiers,
  type TierPrice,
  type Usage,
} from './core/money.ts'
