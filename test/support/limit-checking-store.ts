import { recordingStore, type RecordingStore } from './recording-store.ts'

/** A reservation that exceeded the budget. */
export interface Rejection {
  readonly max: number
  /** Sum of the spent and held amounts at the rejection. */
  readonly level: number
  /** Minimum grant of the request. */
  readonly minGrant: number
}

export interface LimitCheckingStore extends RecordingStore {
  readonly rejections: readonly Rejection[]
  /** Grants above a limit, and rejections of claims that fit. */
  readonly violations: readonly string[]
}

/** A recording store that also checks limits. Calls `onReservation` after each reservation. */
export function limitCheckingStore(
  now: () => number,
  onReservation: (results: Pick<LimitCheckingStore, 'reservationIds' | 'rejections'>) => void = () => {},
): LimitCheckingStore {
  const store = recordingStore(now)
  const rejections: Rejection[] = []
  const violations: string[] = []
  return {
    ...store,
    rejections,
    violations,
    reserve: async (request) => {
      const result = await store.reserve(request)
      for (const [index, { max, elastic, amount, counter }] of request.claims.entries()) {
        const level = result.levels[index] ?? 0
        if (result.accepted && level > max) violations.push(`${counter}: ${level} of ${max} granted`)
        if (result.accepted || index !== result.rejectedIndex) continue
        const minGrant = elastic === true ? Math.min(amount, request.minGrant ?? amount) : amount
        rejections.push({ max, level, minGrant })
        if (max - level >= minGrant) violations.push(`${counter}: ${minGrant} rejected at ${level} of ${max}`)
      }
      onReservation({ reservationIds: store.reservationIds, rejections })
      return result
    },
  }
}
