interface FailureWindowOptions {
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
/** Without the key that failed most, this fraction of the failure rate is sufficient, because the requests of keys differ. */
const OTHERS_SHARE = 2

/** Counts the requests to one upstream within the last seconds, by key. */
export class FailureWindow {
  readonly #failureRate: number
  readonly #minRequests: number
  readonly #windowMs: number
  #slots: readonly Slot[] = []

  constructor({ failureRate = 0.5, minRequests = 20, windowMs = 30_000 }: FailureWindowOptions) {
    this.#failureRate = failureRate
    this.#minRequests = minRequests
    this.#windowMs = windowMs
  }

  /** Marks the key as active. */
  join(keyId: string, now: number): void {
    this.#countOf(keyId, now)
  }

  add(keyId: string, outcome: 'succeeded' | 'failed', now: number): void {
    this.#countOf(keyId, now)[outcome] += 1
  }

  isActive(now: number): boolean {
    return this.#recent(now).length > 0
  }

  clear(): void {
    this.#slots = []
  }

  /**
   * Returns undefined unless the upstream fails. `keyId` is the only active key, or undefined if the requests of several
   * keys fail.
   */
  failing(now: number): { readonly keyId: string | undefined } | undefined {
    const perKey = new Map<string, Count>()
    for (const { counts } of this.#recent(now)) {
      for (const [keyId, count] of counts) perKey.set(keyId, sum([count, perKey.get(keyId) ?? NONE]))
    }
    const all = sum(perKey.values())
    if (all.failed + all.succeeded < this.#minRequests || !reaches(this.#failureRate, all)) return undefined
    const [only] = perKey.keys()
    if (perKey.size === 1) return { keyId: only }
    const worst = [...perKey.values()].reduce((most, count) => (count.failed > most.failed ? count : most))
    const others = { succeeded: all.succeeded - worst.succeeded, failed: all.failed - worst.failed }
    return reaches(this.#failureRate / OTHERS_SHARE, others) ? { keyId: undefined } : undefined
  }

  #recent(now: number): readonly Slot[] {
    return this.#slots.filter((slot) => slot.startsAt > now - this.#windowMs)
  }

  #countOf(keyId: string, now: number): Count {
    const startsAt = now - (now % (this.#windowMs / SLOTS))
    let slot = this.#slots.at(-1)
    if (slot?.startsAt !== startsAt) {
      slot = { startsAt, counts: new Map() }
      this.#slots = [...this.#recent(now), slot]
    }
    const name = slot.counts.has(keyId) || slot.counts.size < MAX_KEYS ? keyId : OTHER_KEYS
    const count = slot.counts.get(name) ?? { succeeded: 0, failed: 0 }
    slot.counts.set(name, count)
    return count
  }
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

function reaches(rate: number, { succeeded, failed }: Count): boolean {
  return failed > 0 && failed >= rate * (failed + succeeded)
}
