import type { JsonObject } from './json.ts'
import type { Price } from './money.ts'
import type { Settings } from './prompt.ts'

/** Vocabularies of which the gateway has the ranks. */
export type Vocabulary = 'o200k' | 'cl100k'

/** One model as an upstream serves it. */
export interface Model {
  /** The id that the upstream knows. May contain `/`. */
  readonly id: string
  /** The vendor's line of models: `claude`, `gpt`, `gemini`, `llama`, `mistral` … Data of a prompt never leaves it. */
  readonly family: string
  readonly displayName?: string
  /** What the model does. @default unknown: it is asked for either, and its upstream decides */
  readonly kind?: 'chat' | 'embedding'
  /** When the vendor published it, seconds since 1970. */
  readonly created?: number
  /** Tokens of prompt and answer together. */
  readonly contextWindow: number
  /** The greatest answer in tokens: what a request without max_tokens reserves. */
  readonly maxOutputTokens: number
  /** True when the upstream itself enforces `maxOutputTokens`; else the gateway sends it as the limit. @default true */
  readonly enforcesMaxOutput?: boolean
  readonly price: Price
  /** The day the price was true, YYYY-MM-DD. */
  readonly pricedAt?: string
  /** The id of the cheaper model of this family, at the same provider, that tiers 2, 3 and 4 ask. */
  readonly small?: string
  /** Settings applied where the caller set nothing. */
  readonly defaults?: Pick<Settings, 'temperature' | 'topP'>
  /** True when the upstream refuses temperature together with top_p: temperature alone is then sent. */
  readonly refusesBothSamplers?: boolean
  /** True when the upstream refuses every temperature and top_p but its own. */
  readonly refusesSamplers?: boolean
  /** The reasoning efforts of the model, in its vendor's words. @default unknown: efforts of other formats are left out */
  readonly efforts?: readonly string[]
  /** Fields of the provider's own format that switch thinking off; sent with the short questions of tiers 2, 3 and 4. */
  readonly withoutThinking?: JsonObject
  /** The thresholds of the automatic tiers are multiplied by this. @default 1 */
  readonly thresholdFactor?: number
  /** The vocabulary with which the gateway itself counts this model's tokens exactly. @default it cannot */
  readonly tokenizer?: Vocabulary
  /**
   * Loosens the reservation knowingly: tokens of this model for one token of o200k, at the most. Used only where no
   * exact counter exists. @default the prompt is reserved by its bytes
   */
  readonly tokenFactor?: number
  /** The most tokens that this model counts for one image. @default 9600 */
  readonly imageTokens?: number
  /** The window of the model itself, where an alias promises a smaller `contextWindow`. @default contextWindow */
  readonly upstreamWindow?: number
}

/** A model name as callers write it, split at the first slash. */
export interface ModelName {
  readonly provider: string
  readonly id: string
}

/** `<provider>/<model_id>`, where model_id may contain slashes; undefined for a name without a provider. */
export function splitModelName(name: string): ModelName | undefined {
  const slash = name.indexOf('/')
  if (slash <= 0 || slash === name.length - 1) return undefined
  return { provider: name.slice(0, slash), id: name.slice(slash + 1) }
}

/** The greatest length of a model name. */
const MAX_NAME_LENGTH = 200

/**
 * True for a name that may stand in a header, a log line and a path: printable ASCII without blanks or the signs that
 * change the meaning of a URL.
 */
export function isSafeModelName(name: string): boolean {
  if (name.length > MAX_NAME_LENGTH || !/^[\w.:@+/-]+$/.test(name)) return false
  return !name.includes('..') || !name.split('/').includes('..')
}

/** True when a list of permissions names the model: exactly, or by a beginning followed by `*`. */
export function matchesModel(patterns: readonly string[], name: string): boolean {
  return patterns.some((pattern) => (pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : pattern === name))
}
