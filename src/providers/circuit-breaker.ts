import { numberFrom, type OptionCheck, optionsOf } from '../core/check-options.ts'

/** Options of the circuit breaker, which skips failing upstreams. Each model of a provider has its own circuit. */
export interface CircuitBreakerOptions {
  /**
   * Fraction of failed requests that opens a circuit, from 0.01 to 1. If several keys use the circuit, the keys other
   * than the one with the most failures must also reach half of this fraction. @default 0.5
   */
  readonly failureShare?: number
  /** Minimum number of requests in the window before a circuit can open. @default 20 */
  readonly minRequests?: number
  /** Time for which a request is counted, in milliseconds. @default 30_000 */
  readonly windowMs?: number
  /** Time for which an open circuit rejects requests that have another candidate, in milliseconds. @default 30_000 */
  readonly openMs?: number
  /** Maximum number of requests without another candidate that an open circuit admits per second and key. @default 1 */
  readonly probesPerSecond?: number
}

export interface CircuitRequest {
  readonly circuit: string
  readonly scope: string
  readonly now: number
  readonly hasAlternative: boolean
}

export interface CircuitReport {
  readonly state: 'closed' | 'open' | 'half-open'
  readonly isForAllKeys: boolean
}

export interface CircuitBreaker {
  readonly admit: (request: CircuitRequest) => CircuitPermit | undefined
  /** Includes half-open circuits. */
  readonly isOpen: (circuit: string, scope: string) => boolean
  readonly waitMs: (circuit: string, scope: string, now: number) => number
  readonly reports: (now: number) => Readonly<Record<string, CircuitReport>>
}

interface Opening {
  /** Undefined if open for all keys. */
  readonly scope: string | undefined
  /** When the circuit opened or the last probe failed. */
  openedAt: number
  probedAt: number
  readonly probedAtByKey: Map<string, number>
}

interface Circuit {
  readonly window: FailureWindow
  opening: Opening | undefined
}

/** Callers may choose model ids, so the number of circuits would otherwise be unbounded. */
const MAX_ENTRIES = 1000

export const checkCircuitBreaker: OptionCheck = optionsOf({
  failureShare: numberFrom(0.01, 1),
  minRequests: numberFrom(1, 10_000),
  windowMs: numberFrom(1000, 3_600_000),
  openMs: numberFrom(1000, 3_600_000),
  probesPerSecond: numberFrom(1, 1000),
} satisfies Record<keyof CircuitBreakerOptions, OptionCheck>)

/** @param given `false` opens no circuit. */
export function createCircuitBreaker(given: false | CircuitBreakerOptions = {}): CircuitBreaker {
  const options = given === false ? { minRequests: Infinity } : given
  const { openMs = 30_000, probesPerSecond = 1 } = options
  const probeEveryMs = 1000 / probesPerSecond
  const circuits = new Map<string, Circuit>()
  let newest = ''

  function getOrCreateCircuit(name: string): Circuit {
    const known = circuits.get(name)
    if (known !== undefined && name === newest) return known
    newest = name
    const circuit = known ?? { window: new FailureWindow(options), opening: undefined }
    setAsNewest(circuits, name, circuit)
    return circuit
  }

  function openingFor(circuit: Circuit | undefined, scope: string): Opening | undefined {
    const opening = circuit?.opening
    return opening?.scope === undefined || opening.scope === scope ? opening : undefined
  }

  function msUntilProbe(opening: Opening, { scope, now, hasAlternative }: Omit<CircuitRequest, 'circuit'>): number {
    const halfOpenInMs = Math.max(opening.openedAt, opening.probedAt) + openMs - now
    if (hasAlternative) return Math.max(0, halfOpenInMs)
    const nextProbeInMs = (opening.probedAtByKey.get(scope) ?? -Infinity) + probeEveryMs - now
    return Math.max(0, Math.min(halfOpenInMs, nextProbeInMs))
  }

  function admit(request: CircuitRequest): CircuitPermit | undefined {
    const { scope, now } = request
    const circuit = getOrCreateCircuit(request.circuit)
    const opening = openingFor(circuit, scope)
    if (opening !== undefined) {
      if (msUntilProbe(opening, request) > 0) return undefined
      opening.probedAt = now
      setAsNewest(opening.probedAtByKey, scope, now)
    }
    circuit.window.markActive(scope, now)
    return new CircuitPermit(circuit, scope, opening)
  }

  return {
    admit,
    isOpen: (name, scope) => openingFor(circuits.get(name), scope) !== undefined,
    waitMs(name, scope, now) {
      const opening = openingFor(circuits.get(name), scope)
      return opening === undefined ? 0 : msUntilProbe(opening, { scope, now, hasAlternative: false })
    },
    reports(now) {
      const reported = [...circuits].filter(([, { window, opening }]) => opening !== undefined || window.isActive(now))
      return Object.fromEntries(reported.map(([name, circuit]) => [name, reportOf(circuit, now, openMs)]))
    },
  }
}

function setAsNewest<T>(entries: Map<string, T>, name: string, value: T): void {
  entries.delete(name)
  const [oldest] = entries.keys()
  if (entries.size >= MAX_ENTRIES && oldest !== undefined) entries.delete(oldest)
  entries.set(name, value)
}

/** Only the first call to any method has an effect, so that a request with its retries is counted once. */
export class CircuitPermit {
  readonly #circuit: Circuit
  readonly #scope: string
  readonly #probedOpening: Opening | undefined
  #isOver = false

  constructor(circuit: Circuit, scope: string, probedOpening: Opening | undefined) {
    this.#circuit = circuit
    this.#scope = scope
    this.#probedOpening = probedOpening
  }

  recordSuccess(now: number): void {
    if (this.#isOver) return
    this.#isOver = true
    const circuit = this.#circuit
    if (this.#probedOpening !== undefined && circuit.opening === this.#probedOpening) {
      circuit.opening = undefined
      circuit.window.clear()
    }
    circuit.window.add(this.#scope, 'succeeded', now)
  }

  recordFailure(now: number): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#circuit.window.add(this.#scope, 'failed', now)
    if (this.#probedOpening === undefined) updateOpening(this.#circuit, now)
    else this.#probedOpening.openedAt = now
  }

  discard(): void {
    if (this.#isOver) return
    this.#isOver = true
    // The probe has no result, so it does not delay the half-open state.
    if (this.#probedOpening !== undefined) this.#probedOpening.probedAt = -Infinity
  }
}

function updateOpening(circuit: Circuit, now: number): void {
  const scope = circuit.window.failureScope(now)
  if (scope === undefined) return
  const { opening } = circuit
  if (opening !== undefined && (opening.scope === undefined || opening.scope === scope.scope)) return
  circuit.opening = { scope: scope.scope, openedAt: now, probedAt: -Infinity, probedAtByKey: new Map() }
}

function reportOf({ opening }: Circuit, now: number, openMs: number): CircuitReport {
  if (opening === undefined) return { state: 'closed', isForAllKeys: true }
  const state = now - opening.openedAt < openMs ? 'open' : 'half-open'
  return { state, isForAllKeys: opening.scope === undefined }
}

interface OutcomeCounts {
  succeeded: number
  failed: number
}

interface Slot {
  readonly startsAt: number
  readonly counts: Map<string, OutcomeCounts>
}

const SLOT_COUNT = 10
const MAX_KEYS = 64
const SHARED_COUNT_KEY = ''
/** A circuit opens for all keys only if the keys other than the worst reach half of `failureShare`. */
const OTHER_KEYS_DIVISOR = 2

class FailureWindow {
  readonly #failureShare: number
  readonly #minRequests: number
  readonly #windowMs: number
  #slots: readonly Slot[] = []

  constructor({ failureShare = 0.5, minRequests = 20, windowMs = 30_000 }: CircuitBreakerOptions) {
    this.#failureShare = failureShare
    this.#minRequests = minRequests
    this.#windowMs = windowMs
  }

  markActive(scope: string, now: number): void {
    this.#countsOf(scope, now)
  }

  add(scope: string, outcome: 'succeeded' | 'failed', now: number): void {
    this.#countsOf(scope, now)[outcome] += 1
  }

  isActive(now: number): boolean {
    return this.#recent(now).length > 0
  }

  clear(): void {
    this.#slots = []
  }

  /** Returns undefined unless the upstream is failing. `scope` is undefined if several keys are active. */
  failureScope(now: number): { readonly scope: string | undefined } | undefined {
    const countsByKey = new Map<string, OutcomeCounts>()
    for (const { counts } of this.#recent(now)) {
      for (const [scope, count] of counts) countsByKey.set(scope, sumCounts([count, countsByKey.get(scope)]))
    }
    const all = sumCounts(countsByKey.values())
    if (all.failed + all.succeeded < this.#minRequests || !reachesRate(this.#failureShare, all)) return undefined
    const [only] = countsByKey.keys()
    if (countsByKey.size === 1) return { scope: only }
    const worst = [...countsByKey.values()].reduce((max, count) => (count.failed > max.failed ? count : max))
    const others = { succeeded: all.succeeded - worst.succeeded, failed: all.failed - worst.failed }
    return reachesRate(this.#failureShare / OTHER_KEYS_DIVISOR, others) ? { scope: undefined } : undefined
  }

  #recent(now: number): readonly Slot[] {
    return this.#slots.filter((slot) => slot.startsAt > now - this.#windowMs)
  }

  #countsOf(scope: string, now: number): OutcomeCounts {
    const startsAt = now - (now % (this.#windowMs / SLOT_COUNT))
    let slot = this.#slots.at(-1)
    if (slot?.startsAt !== startsAt) {
      slot = { startsAt, counts: new Map() }
      this.#slots = [...this.#recent(now), slot]
    }
    const name = slot.counts.has(scope) || slot.counts.size < MAX_KEYS ? scope : SHARED_COUNT_KEY
    const counts = slot.counts.get(name) ?? { succeeded: 0, failed: 0 }
    slot.counts.set(name, counts)
    return counts
  }
}

function sumCounts(counts: Iterable<OutcomeCounts | undefined>): OutcomeCounts {
  const total = { succeeded: 0, failed: 0 }
  for (const count of counts) {
    total.succeeded += count?.succeeded ?? 0
    total.failed += count?.failed ?? 0
  }
  return total
}

function reachesRate(rate: number, { succeeded, failed }: OutcomeCounts): boolean {
  return failed > 0 && failed >= rate * (failed + succeeded)
}
