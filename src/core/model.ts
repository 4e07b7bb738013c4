import type { JsonObject } from './json.ts'
import type { Price } from './money.ts'
import type { Settings } from './prompt.ts'

/** Tokenizer vocabularies. */
export type Vocabulary = 'o200k' | 'cl100k'

/** A model of a provider. */
export interface Model {
  /** The id in requests to the upstream. May contain `/`. */
  readonly id: string
  /**
   * The vendor's model family, such as `claude`, `gpt` or `llama`. Prompts are never sent to small models of another
   * family.
   */
  readonly family: string
  readonly displayName?: string
  /** The kind of requests that the model accepts. @default both: the upstream decides */
  readonly kind?: 'chat' | 'embedding'
  /** Publication date, in seconds since 1970. */
  readonly created?: number
  /** Maximum number of prompt and output tokens together. */
  readonly contextWindow: number
  /** Maximum number of output tokens. Reserved for requests without max_tokens. */
  readonly maxOutputTokens: number
  /** True if the upstream enforces `maxOutputTokens`. Otherwise the gateway sends it as the limit. @default true */
  readonly enforcesMaxOutput?: boolean
  readonly price: Price
  /** YYYY-MM-DD. */
  readonly pricedAt?: string
  /** The id of a cheaper model of this family at the same provider, for tiers 2, 3 and 4. */
  readonly small?: string
  /** Sent if the caller does not set these parameters. */
  readonly defaults?: Pick<Settings, 'temperature' | 'topP'>
  /** True if the upstream rejects temperature together with top_p. Only temperature is then sent. */
  readonly rejectsTemperatureWithTopP?: boolean
  /** True if the upstream rejects temperature, top_p and top_k unless they have their default values. */
  readonly rejectsSamplingParameters?: boolean
  /** Reasoning efforts, as the vendor names them. @default unknown: efforts of other formats are dropped */
  readonly efforts?: readonly string[]
  /** Fields of the provider's format that disable reasoning, for calls of tiers 2, 3 and 4. */
  readonly withoutThinking?: JsonObject
  /** Factor for the thresholds of the automatic tiers. @default 1 */
  readonly thresholdFactor?: number
  /** The vocabulary for an exact token count. @default none */
  readonly tokenizer?: Vocabulary
  /**
   * Upper bound on the ratio of the model's token count to the o200k count. Lowers the reservation for models without a
   * `tokenizer`.
   * @default the reservation is based on the size of the prompt in bytes
   */
  readonly tokenFactor?: number
  /** Maximum number of tokens for one image. @default 9600 */
  readonly imageTokens?: number
  /** The upstream's context window, if an alias has a smaller `contextWindow`. @default contextWindow */
  readonly upstreamWindow?: number
}

export interface ModelName {
  readonly provider: string
  readonly id: string
}

/** Splits `<provider>/<model_id>` at the first slash. Returns undefined for a name without a provider. */
export function splitModelName(name: string): ModelName | undefined {
  const slash = name.indexOf('/')
  if (slash <= 0 || slash === name.length - 1) return undefined
  return { provider: name.slice(0, slash), id: name.slice(slash + 1) }
}

const MAX_NAME_LENGTH = 200

/** Returns true for a name that is safe in a header, a log line and a path. */
export function isSafeModelName(name: string): boolean {
  if (name.length > MAX_NAME_LENGTH || !/^[\w.:@+/-]+$/.test(name)) return false
  return !name.includes('..') || !name.split('/').includes('..')
}

/** Returns true if a pattern equals the name, or is a prefix of the name followed by `*`. */
export function matchesModel(patterns: readonly string[], name: string): boolean {
  return patterns.some((pattern) => (pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : pattern === name))
}
