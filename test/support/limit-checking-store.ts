import { recordingStore, type RecordingStore } from './recording-store.ts'

/** A reservation that the budget refused. */
export interface Rejection {
  readonly max: number
  /** Sum of the spent and held amounts at the refusal. */
  readonly level: number
  /** Minimum grant of the request. */
  readonly minGrant: number
}

export interface LimitCheckingStore extends RecordingStore {
  readonly rejections: readonly Rejection[]
  /** Grants above a limit, and refusals of claims that fit. */
  readonly violations: readonly string[]
}

/** A watched store that records grants above a limit and refusals of claims that fit. Calls `decided` after each reservation. */
export function limitCheckingStore(
  now: () => number,
  onReservation: (so: Pick<LimitCheckingStore, 'reservationIds' | 'rejections'>) => void = () => {},
): LimitCheckingStore {
  const store = recordingStore(now)
  const refusals: Rejection[] = []
  const violations: string[] = []
  return {
    ...store,
    rejections: refusals,
    violations,
    reserve: async (request) => {
      const result = await store.reserve(request)
      for (const [index, { max, elastic, amount, counter }] of request.claims.entries()) {
        const level = result.levels[index] ?? 0
        if (result.accepted && level > max) violations.push(`${counter}: ${level} of ${max} granted`)
        if (result.accepted || index !== result.rejectedIndex) continue
        const minGrant = elastic === true ? Math.min(amount, request.minGrant ?? amount) : amount
        refusals.push({ max, level, minGrant })
        if (max - level >= minGrant) violations.push(`${counter}: ${minGrant} refused at ${level} of ${max}`)
      }
      onReservation({ reservationIds: store.reservationIds, rejections: refusals })
      return result
    },
  }
}
