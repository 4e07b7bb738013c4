/** `open`: left alone for a while after it failed; `half-open`: one call finds out whether it is well again. */
export type CircuitState = 'closed' | 'open' | 'half-open'

export interface CircuitOptions {
  /** So many failures in a row open a circuit. @default 5 */
  readonly failures?: number
  /** How long an open circuit stays open, in milliseconds. @default 30_000 */
  readonly coolDownMs?: number
}

/** Which providers are well. Pure bookkeeping: the moments are given, milliseconds since 1970. */
export interface Circuits {
  /** Whether a call may go out now. A half-open circuit lets one call through, and another if that one does not end. */
  admits(name: string, now: number): boolean
  succeeded(name: string): void
  /** The call failed by the provider's own fault. */
  failed(name: string, now: number): void
  /** The call ended without saying anything about the provider: its caller left, or was told to slow down. */
  undecided(name: string): void
  /** Milliseconds until a call may go out again; 0 for now. */
  waitMs(name: string, now: number): number
  /** All circuits that are not closed. */
  states(now: number): Readonly<Record<string, CircuitState>>
}

interface Circuit {
  readonly failures: number
  readonly openedAt?: number
  readonly probedAt?: number
}

/** Providers come from the configuration and are few; should names ever come from elsewhere, the oldest is forgotten. */
const MOST_CIRCUITS = 1000

export function createCircuits(options: CircuitOptions = {}): Circuits {
  const { failures: limit = 5, coolDownMs = 30_000 } = options
  const circuits = new Map<string, Circuit>()
  const put = (name: string, circuit: Circuit): void => {
    circuits.delete(name)
    const [oldest] = circuits.keys()
    if (circuits.size >= MOST_CIRCUITS && oldest !== undefined) circuits.delete(oldest)
    circuits.set(name, circuit)
  }
  const since = (at: number | undefined, now: number): number => (at === undefined ? Infinity : now - at)
  return {
    admits(name, now) {
      const circuit = circuits.get(name)
      if (circuit?.openedAt === undefined) return true
      if (since(circuit.openedAt, now) < coolDownMs || since(circuit.probedAt, now) < coolDownMs) return false
      put(name, { ...circuit, probedAt: now })
      return true
    },
    succeeded(name) {
      circuits.delete(name)
    },
    failed(name, now) {
      const circuit = circuits.get(name) ?? { failures: 0 }
      const failures = circuit.failures + 1
      // A call that was already under way when the circuit opened says nothing new.
      const isNews = circuit.openedAt === undefined || circuit.probedAt !== undefined
      if (!isNews) return
      put(name, failures >= limit ? { failures, openedAt: now } : { failures })
    },
    undecided(name) {
      const circuit = circuits.get(name)
      if (circuit?.openedAt === undefined) return
      put(name, { failures: circuit.failures, openedAt: circuit.openedAt })
    },
    waitMs(name, now) {
      const circuit = circuits.get(name)
      if (circuit?.openedAt === undefined) return 0
      return Math.max(0, coolDownMs - Math.min(since(circuit.openedAt, now), since(circuit.probedAt, now)))
    },
    states(now) {
      const open = [...circuits].filter(([, { openedAt }]) => openedAt !== undefined)
      return Object.fromEntries(
        open.map(([name, { openedAt }]) => [name, since(openedAt, now) < coolDownMs ? 'open' : 'half-open']),
      )
    },
  }
}
