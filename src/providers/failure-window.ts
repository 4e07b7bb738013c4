/** The requests to one upstream within the last seconds, counted per key. */
export interface FailureWindow {
  /** A request of the key begins: the key is active. */
  readonly join: (keyId: string, now: number) => void
  readonly add: (keyId: string, outcome: 'succeeded' | 'failed', now: number) => void
  /**
   * Returns undefined while the upstream works. `keyId` names the only active key; it is undefined when the requests of
   * several keys fail.
   */
  readonly failing: (now: number) => { readonly keyId: string | undefined } | undefined
  readonly isActive: (now: number) => boolean
  readonly clear: () => void
}

export interface FailureWindowOptions {
  readonly failureRate?: number
  readonly minRequests?: number
  readonly windowMs?: number
}

interface Count {
  succeeded: number
  failed: number
}

interface Slot {
  readonly startsAt: number
  readonly counts: Map<string, Count>
}

/** Requests expire in steps of a tenth of the window. */
const SLOTS = 10
/** Keys beyond this number share one count per slot. */
const MAX_KEYS = 64
const OTHER_KEYS = ''
/** Without the key that failed most, this part of the failure rate is enough: keys differ in what they ask. */
const OTHERS_SHARE = 2

export function createFailureWindow(options: FailureWindowOptions = {}): FailureWindow {
  const { failureRate = 0.5, minRequests = 20, windowMs = 30_000 } = options
  const slotMs = windowMs / SLOTS
  let slots: readonly Slot[] = []

  function countOf(keyId: string, now: number): Count {
    const startsAt = now - (now % slotMs)
    let slot = slots.at(-1)
    if (slot?.startsAt !== startsAt) {
      slot = { startsAt, counts: new Map() }
      slots = [...recent(now), slot]
    }
    const name = slot.counts.has(keyId) || slot.counts.size < MAX_KEYS ? keyId : OTHER_KEYS
    const count = slot.counts.get(name) ?? { succeeded: 0, failed: 0 }
    slot.counts.set(name, count)
    return count
  }

  function recent(now: number): readonly Slot[] {
    return slots.filter((slot) => slot.startsAt > now - windowMs)
  }

  const reaches = (rate: number, { succeeded, failed }: Count): boolean =>
    failed > 0 && failed >= rate * (failed + succeeded)

  return {
    join: (keyId, now) => void countOf(keyId, now),
    add(keyId, outcome, now) {
      countOf(keyId, now)[outcome] += 1
    },
    failing(now) {
      const perKey = sumPerKey(recent(now))
      const all = sum(perKey.values())
      if (all.failed + all.succeeded < minRequests || !reaches(failureRate, all)) return undefined
      const [only] = perKey.keys()
      if (perKey.size === 1) return { keyId: only }
      const worst = [...perKey.values()].reduce((most, count) => (count.failed > most.failed ? count : most))
      const others = { succeeded: all.succeeded - worst.succeeded, failed: all.failed - worst.failed }
      return reaches(failureRate / OTHERS_SHARE, others) ? { keyId: undefined } : undefined
    },
    isActive: (now) => recent(now).length > 0,
    clear() {
      slots = []
    },
  }
}

function sumPerKey(slots: readonly Slot[]): ReadonlyMap<string, Count> {
  const perKey = new Map<string, Count>()
  for (const { counts } of slots) {
    for (const [keyId, count] of counts) perKey.set(keyId, sum([count, perKey.get(keyId) ?? NONE]))
  }
  return perKey
}

const NONE: Count = { succeeded: 0, failed: 0 }

function sum(counts: Iterable<Count>): Count {
  const total = { succeeded: 0, failed: 0 }
  for (const { succeeded, failed } of counts) {
    total.succeeded += succeeded
    total.failed += failed
  }
  return total
}
