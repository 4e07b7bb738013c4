import { numberFrom, type OptionCheck, optionsOf } from '../core/option-checks.ts'

/** `half-open`: the next request is a probe. */
export type CircuitState = 'closed' | 'open' | 'half-open'

/** Options of the circuit breaker, which skips failing upstreams. Each model of a provider has its own circuit. */
export interface CircuitBreakerOptions {
  /** Fraction of failed requests that opens a circuit, from 0.01 to 1. @default 0.5 */
  readonly failureRate?: number
  /** Minimum number of requests in the window before a circuit can open. @default 20 */
  readonly minRequests?: number
  /** Time for which a request is counted, in milliseconds. @default 30_000 */
  readonly windowMs?: number
  /**
   * Time for which an open circuit rejects all requests that have another candidate, in milliseconds. @default 30_000
   */
  readonly openMs?: number
  /** Maximum number of requests without another candidate that an open circuit admits per second and key. @default 1 */
  readonly probesPerSecond?: number
}

export interface CircuitRequest {
  readonly circuit: string
  readonly keyId: string
  readonly now: number
  /** True if the circuit of another candidate is closed. */
  readonly hasAlternative: boolean
}

/** Only the first call of a method has an effect, so retries are not counted. */
export interface CircuitPass {
  succeeded(now: number): void
  failed(now: number): void
  /** For a request that reveals nothing about the upstream, because the caller disconnected or caused the failure. */
  undecided(): void
}

export interface CircuitReport {
  readonly state: CircuitState
  /** False if the circuit is open only for the key whose requests failed. */
  readonly isForAllKeys: boolean
}

export interface CircuitBreaker {
  readonly admit: (request: CircuitRequest) => CircuitPass | undefined
  /** Includes half-open circuits. */
  readonly isOpen: (circuit: string, keyId: string) => boolean
  /** Returns the time in milliseconds until the circuit admits a request without another candidate. */
  readonly waitMs: (circuit: string, keyId: string, now: number) => number
  /** Returns the circuits that had requests in the window or are not closed. */
  readonly reports: (now: number) => Readonly<Record<string, CircuitReport>>
}

interface Opening {
  /** Undefined if open for all keys. */
  readonly keyId: string | undefined
  /** When the circuit opened or the last probe failed. */
  openedAt: number
  probedAt: number
  readonly probedAtByKey: Map<string, number>
}

interface Circuit {
  readonly window: FailureWindow
  opening: Opening | undefined
}

/**
 * Maximum number of circuits, and of probing keys per circuit. Callers may choose model ids, so the number of circuits
 * would otherwise be unbounded.
 */
const MAX_ENTRIES = 1000

export const checkCircuitBreaker: OptionCheck = optionsOf({
  failureRate: numberFrom(0.01, 1),
  minRequests: numberFrom(1, 10_000),
  windowMs: numberFrom(1000, 3_600_000),
  openMs: numberFrom(1000, 3_600_000),
  probesPerSecond: numberFrom(1, 1000),
})

/**
 * Opens a circuit when an upstream fails too often. The failures of one key never open a circuit for another key: if
 * several keys are active, the combined failure rate of all keys except the one with the most failures must also reach
 * half of `failureRate`. If a single key is active, the circuit opens for that key alone.
 *
 * An open circuit skips the upstream. It admits one probe after `openMs`, and `probesPerSecond` probes per key from
 * requests without another candidate. A successful probe closes the circuit.
 */
export function createCircuitBreaker(options: CircuitBreakerOptions = {}): CircuitBreaker {
  const { openMs = 30_000, probesPerSecond = 1 } = options
  const probeEveryMs = 1000 / probesPerSecond
  const circuits = new Map<string, Circuit>()
  let newest = ''

  function getCircuit(name: string): Circuit {
    const known = circuits.get(name)
    if (known !== undefined && name === newest) return known
    newest = name
    const circuit = known ?? { window: new FailureWindow(options), opening: undefined }
    setNewest(circuits, name, circuit)
    return circuit
  }

  function openingFor(circuit: Circuit | undefined, keyId: string): Opening | undefined {
    const opening = circuit?.opening
    return opening?.keyId === undefined || opening.keyId === keyId ? opening : undefined
  }

  function msUntilProbe(opening: Opening, keyId: string, { now, hasAlternative }: Wait): number {
    const halfOpenIn = Math.max(opening.openedAt, opening.probedAt) + openMs - now
    if (hasAlternative) return Math.max(0, halfOpenIn)
    const nextIn = (opening.probedAtByKey.get(keyId) ?? -Infinity) + probeEveryMs - now
    return Math.max(0, Math.min(halfOpenIn, nextIn))
  }

  function probe(opening: Opening, { keyId, now }: CircuitRequest): void {
    opening.probedAt = now
    setNewest(opening.probedAtByKey, keyId, now)
  }

  function admit(request: CircuitRequest): CircuitPass | undefined {
    const { keyId, now } = request
    const circuit = getCircuit(request.circuit)
    const opening = openingFor(circuit, keyId)
    if (opening !== undefined && msUntilProbe(opening, keyId, request) > 0) return undefined
    if (opening !== undefined) probe(opening, request)
    circuit.window.markActive(keyId, now)
    return new Pass(circuit, keyId, opening)
  }

  return {
    admit,
    isOpen: (name, keyId) => openingFor(circuits.get(name), keyId) !== undefined,
    waitMs(name, keyId, now) {
      const opening = openingFor(circuits.get(name), keyId)
      return opening === undefined ? 0 : msUntilProbe(opening, keyId, { now, hasAlternative: false })
    },
    reports(now) {
      const used = [...circuits].filter(([, { window, opening }]) => opening !== undefined || window.isActive(now))
      return Object.fromEntries(used.map(([name, circuit]) => [name, reportOf(circuit, now, openMs)]))
    },
  }
}

type Wait = Pick<CircuitRequest, 'now' | 'hasAlternative'>

/** If the map is full, removes the least recently added entry. */
function setNewest<T>(entries: Map<string, T>, name: string, value: T): void {
  entries.delete(name)
  const [oldest] = entries.keys()
  if (entries.size >= MAX_ENTRIES && oldest !== undefined) entries.delete(oldest)
  entries.set(name, value)
}

class Pass implements CircuitPass {
  readonly #circuit: Circuit
  readonly #keyId: string
  /** The opening that this request probes. Undefined if the circuit is closed. */
  readonly #probing: Opening | undefined
  #isOver = false

  constructor(circuit: Circuit, keyId: string, probing: Opening | undefined) {
    this.#circuit = circuit
    this.#keyId = keyId
    this.#probing = probing
  }

  succeeded(now: number): void {
    if (this.#isOver) return
    this.#isOver = true
    const circuit = this.#circuit
    if (this.#probing !== undefined && circuit.opening === this.#probing) {
      circuit.opening = undefined
      circuit.window.clear()
    }
    circuit.window.add(this.#keyId, 'succeeded', now)
  }

  failed(now: number): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#circuit.window.add(this.#keyId, 'failed', now)
    if (this.#probing === undefined) updateOpening(this.#circuit, now)
    else this.#probing.openedAt = now
  }

  undecided(): void {
    if (this.#isOver) return
    this.#isOver = true
    // The probe has no result, so the next request may probe.
    if (this.#probing !== undefined) this.#probing.probedAt = -Infinity
  }
}

/** Opens a failing circuit, or extends an opening from one key to all keys. */
function updateOpening(circuit: Circuit, now: number): void {
  const failing = circuit.window.failing(now)
  if (failing === undefined) return
  const { opening } = circuit
  if (opening !== undefined && (opening.keyId === undefined || opening.keyId === failing.keyId)) return
  circuit.opening = { keyId: failing.keyId, openedAt: now, probedAt: -Infinity, probedAtByKey: new Map() }
}

function reportOf({ opening }: Circuit, now: number, openMs: number): CircuitReport {
  if (opening === undefined) return { state: 'closed', isForAllKeys: true }
  const state = now - opening.openedAt < openMs ? 'open' : 'half-open'
  return { state, isForAllKeys: opening.keyId === undefined }
}

interface Count {
  succeeded: number
  failed: number
}

interface Slot {
  readonly startsAt: number
  readonly counts: Map<string, Count>
}

/** Number of slots in the window. Requests expire one slot at a time. */
const SLOT_COUNT = 10
/** Maximum number of keys with a separate count per slot. Other keys share one count. */
const MAX_KEYS = 64
const OTHER_KEYS = ''
/** Divides the failure-rate threshold for the other keys. Their requests differ, so a lower rate suffices. */
const OTHER_KEYS_DIVISOR = 2

/** Counts recent requests to an upstream by key. */
export class FailureWindow {
  readonly #failureRate: number
  readonly #minRequests: number
  readonly #windowMs: number
  #slots: readonly Slot[] = []

  constructor({ failureRate = 0.5, minRequests = 20, windowMs = 30_000 }: CircuitBreakerOptions) {
    this.#failureRate = failureRate
    this.#minRequests = minRequests
    this.#windowMs = windowMs
  }

  markActive(keyId: string, now: number): void {
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
   * Returns undefined unless the upstream is failing. `keyId` is the only active key, or undefined if there are
   * several.
   */
  failing(now: number): { readonly keyId: string | undefined } | undefined {
    const perKey = new Map<string, Count>()
    for (const { counts } of this.#recent(now)) {
      for (const [keyId, count] of counts) perKey.set(keyId, sum([count, perKey.get(keyId) ?? sum([])]))
    }
    const all = sum(perKey.values())
    if (all.failed + all.succeeded < this.#minRequests || !reaches(this.#failureRate, all)) return undefined
    const [only] = perKey.keys()
    if (perKey.size === 1) return { keyId: only }
    const worst = [...perKey.values()].reduce((most, count) => (count.failed > most.failed ? count : most))
    const others = { succeeded: all.succeeded - worst.succeeded, failed: all.failed - worst.failed }
    return reaches(this.#failureRate / OTHER_KEYS_DIVISOR, others) ? { keyId: undefined } : undefined
  }

  #recent(now: number): readonly Slot[] {
    return this.#slots.filter((slot) => slot.startsAt > now - this.#windowMs)
  }

  #countOf(keyId: string, now: number): Count {
    const startsAt = now - (now % (this.#windowMs / SLOT_COUNT))
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
