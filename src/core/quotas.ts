import { GatewayError } from './errors.ts'
import type { Quota } from './ports.ts'

/** Everything that one virtual key can make the store keep. */
export type QuotaKind =
  /** Message batches with their items and results. */
  | 'batch'
  /** Responses that `previous_response_id` can refer to. */
  | 'turn'
  /** Ids of responses that an upstream holds for the key. */
  | 'held-response'
  /** Files that an upstream holds for the key. They have no end. */
  | 'file'
  /** Streams and answers that can be replayed. */
  | 'recording'
  /** Answers under an Idempotency-Key. */
  | 'idempotency'
  /** Transcripts and summaries of tiers 2 to 4. */
  | 'savings'
  /** Audit records of requests that were answered or billed. */
  | 'audit'
  /** Audit records of requests that were refused, failed or abandoned without a bill. They cost the key nothing. */
  | 'audit-unbilled'

type Bounds = Pick<Quota, 'maxEntries' | 'maxBytes'>

const MIB = 1024 * 1024

/**
 * A batch of the largest body that is accepted (32 MiB) fits its quota, and so does the longest turn and recording
 * (8 MiB). An audit record is two entries: one in the log of all keys, one in the log of its own.
 */
const BOUNDS: Readonly<Record<QuotaKind, Bounds>> = {
  batch: { maxEntries: 100_000, maxBytes: 96 * MIB },
  turn: { maxEntries: 5_000, maxBytes: 16 * MIB },
  'held-response': { maxEntries: 20_000, maxBytes: 16 * MIB },
  file: { maxEntries: 1_000, maxBytes: 4 * MIB },
  recording: { maxEntries: 5_000, maxBytes: 16 * MIB },
  idempotency: { maxEntries: 10_000, maxBytes: 16 * MIB },
  savings: { maxEntries: 5_000, maxBytes: 16 * MIB },
  audit: { maxEntries: 50_000, maxBytes: 32 * MIB },
  'audit-unbilled': { maxEntries: 2_000, maxBytes: 2 * MIB },
}

/** Returns the quota of one kind for one key. The name is `<kind>:<key id>`. */
export function quotaOf(kind: QuotaKind, keyId: string): Quota {
  return { name: `${kind}:${keyId}`, ...BOUNDS[kind] }
}

/** The error of every store for a value that its quota does not take. */
export function quotaExceeded({ maxEntries, maxBytes }: Quota): GatewayError {
  return new GatewayError(
    'quota-exceeded',
    `This key's storage quota is full: at most ${maxEntries} values of ${maxBytes} bytes together, and less while the store is nearly full. Delete values that are no longer needed.`,
  )
}
