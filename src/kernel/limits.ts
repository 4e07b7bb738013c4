import type { BodyLimits } from '../core/http.ts'
import type { ParseLimits } from '../formats/scan-json.ts'
import type { Runtime } from '../core/ports.ts'

/** Limits on requests. */
export interface Limits {
  /** Maximum size of a body, in bytes. @default 33_554_432 (32 MiB) */
  readonly bodyBytes: number
  /**
   * Maximum total size of the bodies above 1 MiB that one key has in progress, in bytes. A body is in progress from its
   * arrival to the end of its response. Further bodies wait, and are rejected with 429 after `bodyReadMs`, or immediately
   * if 100 are waiting. A key without such bodies in progress may send one that is larger.
   * @default 134_217_728 (128 MiB)
   */
  readonly bodyBytesPerKey: number
  /** Maximum time to receive a body, in milliseconds. @default 15_000 */
  readonly bodyReadMs: number
  /** Maximum nesting depth of a JSON body. @default 64 */
  readonly jsonDepth: number
  /** Maximum number of object keys and array elements in a JSON body, except numbers in arrays. @default 100_000 */
  readonly jsonKeys: number
  /** Maximum number of keys of each object in a JSON body. @default 10_000 */
  readonly jsonObjectKeys: number
  /**
   * Maximum count of numbers in the arrays of a JSON body, such as embedding inputs sent as tokens. Each counts four
   * times, except integers of up to 9 digits. @default 500_000
   */
  readonly jsonNumbers: number
  /**
   * Maximum size of a JSON body without its strings, in bytes: whitespace, numbers, literals and punctuation.
   * @default 4_194_304 (4 MiB)
   */
  readonly jsonSyntaxBytes: number
  /**
   * Maximum size of the text in a model request, in bytes: all strings in its body except long base64 data. Does not
   * apply to embeddings. The default is about 2 million tokens of prose, more than any model in the catalog accepts.
   * @default 8_388_608 (8 MiB)
   */
  readonly promptBytes: number
  /** Maximum `temperature` in the chat and responses formats. @default 1 */
  readonly maxTemperature: number
  /** Idle time on a stream after which a heartbeat is sent, in milliseconds. @default 15_000 */
  readonly heartbeatMs: number
}

export interface RequestBodyLimits extends BodyLimits {
  readonly json: ParseLimits
}

export function bodyLimitsOf(limits: Limits, { after }: Pick<Runtime, 'after'>): RequestBodyLimits {
  const { bodyBytes: maxBytes, bodyReadMs: readMs, promptBytes: textBytes } = limits
  return { maxBytes, readMs, after, json: { ...parseLimits(limits), textBytes } }
}

export function parseLimits(limits: Limits): ParseLimits {
  const { jsonDepth: depth, jsonKeys: keys, jsonObjectKeys: objectKeys } = limits
  const { jsonNumbers: numbers, jsonSyntaxBytes: syntaxBytes } = limits
  return { depth, keys, objectKeys, numbers, syntaxBytes }
}
