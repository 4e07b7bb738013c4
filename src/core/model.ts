import type { JsonObject } from './json.ts'
import type { Price } from './money.ts'
import type { Settings } from './prompt.ts'

/** Vocabularies that the gateway can count with. */
export type Vocabulary = 'o200k' | 'cl100k'

/** A model of an upstream. */
export interface Model {
  /** The id that is sent to the upstream. May contain `/`. */
  readonly id: string
  /** The vendor's line of models: `claude`, `gpt`, `gemini`, `llama`, `mistral` … Prompts are never sent to small models of another family. */
  readonly family: string
  readonly displayName?: string
  /** The kind of requests that the model accepts. @default both: the upstream decides */
  readonly kind?: 'chat' | 'embedding'
  /** The time of publication, in seconds since 1970. */
  readonly created?: number
  /** Maximum number of tokens of the prompt and the answer together. */
  readonly contextWindow: number
  /** Maximum number of output tokens. A request without max_tokens reserves it. */
  readonly maxOutputTokens: number
  /** True when the upstream itself enforces `maxOutputTokens`; else the gateway sends it as the limit. @default true */
  readonly enforcesMaxOutput?: boolean
  readonly price: Price
  /** The date of the price, YYYY-MM-DD. */
  readonly pricedAt?: string
  /** The id of the cheaper model of this family, at the same provider, that tiers 2, 3 and 4 call. */
  readonly small?: string
  /** Settings for parameters that the caller does not set. */
  readonly defaults?: Pick<Settings, 'temperature' | 'topP'>
  /** True when the upstream refuses temperature together with top_p: only temperature is then sent. */
  readonly refusesBothSamplers?: boolean
  /** True when the upstream refuses every temperature and top_p except its defaults. */
  readonly refusesSamplers?: boolean
  /** The reasoning efforts of the model, in the vendor's names. @default unknown: efforts of other formats are dropped */
  readonly efforts?: readonly string[]
  /** Fields of the provider's format that disable reasoning. Tiers 2, 3 and 4 send them when they call this model. */
  readonly withoutThinking?: JsonObject
  /** Factor for the thresholds of the automatic tiers. @default 1 */
  readonly thresholdFactor?: number
  /** The vocabulary with which the gateway counts the tokens of this model exactly. @default none */
  readonly tokenizer?: Vocabulary
  /**
   * Maximum number of tokens of this model per token of o200k. Lowers the reservation of models without an exact
   * counter. @default the prompt is reserved by its bytes
   */
  readonly tokenFactor?: number
  /** Maximum number of tokens that this model counts for one image. @default 9600 */
  readonly imageTokens?: number
  /** The context window of the model itself, if an alias has a smaller `contextWindow`. @default contextWindow */
  readonly upstreamWindow?: number
}

/** A model name from a request, split at the first slash. */
export interface ModelName {
  readonly provider: string
  readonly id: string
}

/** Splits `<provider>/<model_id>`; the id may contain slashes. Returns undefined for a name without a provider. */
export function splitModelName(name: string): ModelName | undefined {
  const slash = name.indexOf('/')
  if (slash <= 0 || slash === name.length - 1) return undefined
  return { provider: name.slice(0, slash), id: name.slice(slash + 1) }
}

/** Maximum length of a model name. */
const MAX_NAME_LENGTH = 200

/**
 * Returns true for a name that is safe in a header, a log line and a path: printable ASCII without spaces and without
 * characters that have a meaning in a URL.
 */
export function isSafeModelName(name: string): boolean {
  if (name.length > MAX_NAME_LENGTH || !/^[\w.:@+/-]+$/.test(name)) return false
  return !name.includes('..') || !name.split('/').includes('..')
}

/** Returns true when a list of permissions contains the model, exactly or by a prefix followed by `*`. */
export function matchesModel(patterns: readonly string[], name: string): boolean {
  return patterns.some((pattern) => (pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : pattern === name))
}
