import {
  checkFlag,
  functionCheck,
  expects,
  numberFrom,
  objectWith,
  oneOf,
  optionsOf,
  integerFrom,
  type OptionCheck,
} from '../../core/check-options.ts'
import type { ResponseStore, CachedResponse, Embedder, VectorIndex } from '../../core/cache.ts'
import type { NanoUsd } from '../../core/money.ts'
import type { Runtime } from '../../core/ports.ts'
import { MIN_THRESHOLD } from '../../http/cache-directives.ts'
import { checkEmbedder } from '../../core/check-embedder.ts'

/** All settings of the semantic cache, including those that `createGateway` fills in. */
export interface SemanticCacheOptions {
  /** Lifetime of a response, in seconds. @default 3600 */
  readonly ttlSeconds?: number
  /**
   * Lifetime of a response to a time-sensitive question (today, latest, weather), in seconds, but at most `ttlSeconds`.
   * @default 60
   */
  readonly freshTtlSeconds?: number
  /**
   * Compares similar wordings: `true` in every request with a text question, `false` in none. With `true`, a request
   * whose text is data to work on may get the response to a similar text, if the guard finds no difference.
   *
   * @default true with `similarityThreshold`, `embedder` or `verifyHit`, or if the caller sends `X-Svc-Cache-Threshold`;
   * else only for a question or request without a system prompt, earlier turns and text to work on
   */
  readonly similar?: boolean
  /** Minimum similarity of a hit, 0.85 to 1; 1 accepts identical text only. @default 0.95 */
  readonly similarityThreshold?: number
  /** `global`: all keys share answers. `key`: each key has its own responses. @default 'key' */
  readonly scope?: 'key' | 'global'
  /** Maximum number of entries in memory. @default 1000 */
  readonly maxEntries?: number
  /** Maximum total size of the responses and the index in memory, in bytes. @default 64 MiB */
  readonly maxBytes?: number
  /**
   * Computes the vectors of questions. @default an offline comparison of words, or with `responses` or `index`, an offline
   * embedder
   */
  readonly embedder?: Embedder
  /** Finds similar questions. @default in memory */
  readonly index?: VectorIndex
  /** Stores answers. Processes that use the same database share answers. @default in memory */
  readonly responses?: ResponseStore
  /** Decides whether the best candidate for a paraphrased question is a hit. @default none */
  readonly verifyHit?: VerifyHit
  /**
   * Maximum duration of a call to the embedder, index, answer store or verifier, in milliseconds. Does not limit
   * `clear`. @default 1000
   */
  readonly timeoutMs?: number
  /** Yields to the event loop during long searches. @default a timer of 0 ms */
  readonly pause?: () => Promise<void>
  readonly runtime: Pick<Runtime, 'now' | 'after'>
}

const YEAR_SECONDS = 366 * 24 * 3600

const checkTtl = expects(`a number of seconds above 0, at most ${YEAR_SECONDS}`, (value) =>
  isWithin(value, YEAR_SECONDS),
)

export const checkCache: OptionCheck = optionsOf({
  ttlSeconds: checkTtl,
  freshTtlSeconds: checkTtl,
  similar: checkFlag,
  similarityThreshold: numberFrom(MIN_THRESHOLD, 1),
  scope: oneOf('key', 'global'),
  maxEntries: integerFrom(1),
  maxBytes: integerFrom(1),
  embedder: checkEmbedder,
  index: objectWith('a vector index, such as redisVectorIndex({ … })', ['add', 'nearest']),
  responses: objectWith('a response store, such as redisResponseStore({ … })', ['get', 'put']),
  verifyHit: functionCheck('verifyHit(query, entry, call)'),
  timeoutMs: expects('a number of milliseconds above 0', (value) => isWithin(value, Infinity)),
} satisfies Record<keyof Omit<SemanticCacheOptions, 'runtime' | 'pause'>, OptionCheck>)

function isWithin(value: unknown, max: number): boolean {
  return typeof value === 'number' && value > 0 && value <= max
}

/** The small model of the requested model's family. */
export interface VerifierModel {
  ask(question: {
    readonly instruction: string
    readonly text: string
    readonly maxTokens: number
    readonly signal: AbortSignal
  }): Promise<{ readonly text: string; readonly spent: NanoUsd }>
}

/** The question of the caller or of a stored response, as `verifyHit` compares them. */
export interface AskedQuestion {
  readonly text: string
  readonly keyId: string
  readonly modelName: string
}

/** What `verifyHit` may use besides the two questions. */
export interface VerifierCall {
  readonly smallModel: () => VerifierModel | undefined
  /** Aborts at the deadline, when the request is canceled, and after the returned promise settles. */
  readonly signal: AbortSignal
}

/** A verifier's decision. `spent` is part of the actual cost of the request. */
export interface Verdict {
  readonly agrees: boolean
  readonly spent: NanoUsd
}

/** Decides whether a stored response also answers a paraphrased question. A failure or timeout counts as a miss. */
export interface VerifyHit {
  (
    query: AskedQuestion,
    entry: CachedResponse,
    call: VerifierCall,
  ): boolean | Verdict | Promise<boolean> | Promise<Verdict>
  /**
   * If true and the guard accepts no candidate, the verifier judges the first candidate that differs in its words or
   * their order, but has the same numbers, names, negations, quotations and code. @default false
   */
  readonly judgesWording?: boolean
}

/**
 * Returns a verifier that asks the small model of the requested model's family. It can accept free paraphrases, which
 * the guard rejects, and it can be wrong. Without a small model, every paraphrase is a miss.
 *
 * @example
 * const gateway = createGateway({ providers: [openai()], cache: { verifyHit: smallModelVerifier() } })
 */
export function smallModelVerifier(): VerifyHit {
  const verify = async (query: AskedQuestion, entry: CachedResponse, call: VerifierCall): Promise<Verdict> =>
    (await import('./small-model-verifier.ts')).verifyBySmallModel(query.text, entry.text, call)
  return Object.assign(verify, { judgesWording: true })
}
