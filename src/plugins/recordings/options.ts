import { integerFrom, type OptionCheck, optionsOf } from '../../core/check-options.ts'

/** Options of recorded streams. See docs/streams.md. Sizes count two bytes per UTF-16 code unit of text. */
export interface StreamsOptions {
  /** Maximum time for which a finished stream can be replayed, in seconds. @default 3600 */
  readonly retentionSeconds?: number
  /** Maximum number of concurrent recordings. Further streams are served without a recording. @default 10_000 */
  readonly entries?: number
  /** Maximum size of all concurrent recordings, in bytes. @default 67_108_864 (64 MiB) */
  readonly bytes?: number
  /** Maximum size of one recording, in bytes. @default 8_388_608 (8 MiB) */
  readonly maxBytesPerStream?: number
}

const positiveInteger = integerFrom(1)

/** A year. */
const MAX_RETENTION_SECONDS = 366 * 24 * 3600

export const checkStreams: OptionCheck = optionsOf({
  retentionSeconds: integerFrom(1, MAX_RETENTION_SECONDS, 'seconds'),
  entries: positiveInteger,
  bytes: positiveInteger,
  maxBytesPerStream: positiveInteger,
} satisfies Record<keyof StreamsOptions, OptionCheck>)
