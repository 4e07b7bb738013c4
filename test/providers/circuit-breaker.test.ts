import { describe, expect, it } from 'vitest'
import { createCircuitBreaker, type CircuitBreaker, type CircuitPermit } from '../../src/providers/circuit-breaker.ts'
import { fc } from '../support/properties.ts'

const OPTIONS = { failureShare: 0.5, minRequests: 4, windowMs: 10_000, openMs: 5000, probesPerSecond: 1 }

interface Asking {
  readonly key?: string
  readonly hasAlternative?: boolean
  readonly circuit?: string
}

/** Creates a breaker with a manual clock. */
function createTestBreaker(options = OPTIONS) {
  const breaker: CircuitBreaker = createCircuitBreaker(options)
  const clock = { now: 100_000 }
  const admit = ({ key = 'a', hasAlternative = false, circuit = 'p/m' }: Asking = {}): CircuitPermit | undefined =>
    breaker.admit({ circuit, scope: key, now: clock.now, hasAlternative })
  const fail = (key = 'a', times = 1): void => {
    for (let count = 0; count < times; count += 1) admit({ key })?.recordFailure(clock.now)
  }
  const succeed = (key = 'a', times = 1): void => {
    for (let count = 0; count < times; count += 1) admit({ key })?.recordSuccess(clock.now)
  }
  const stateOf = (): unknown => breaker.reports(clock.now)['p/m']
  return { breaker, clock, admit, fail, succeed, stateOf }
}

const OPEN_FOR_ALL = { state: 'open', isForAllKeys: true }
const OPEN_FOR_ONE = { state: 'open', isForAllKeys: false }
const CLOSED = { state: 'closed', isForAllKeys: true }

/** Creates a circuit and opens it with failures of two keys. */
function createOpenCircuit() {
  const circuit = createTestBreaker()
  circuit.fail('a', 2)
  circuit.fail('b', 2)
  expect(circuit.stateOf()).toEqual(OPEN_FOR_ALL)
  return circuit
}

describe('a closed circuit', () => {
  it('opens at the failure rate, and not below the minimum number of requests', () => {
    const { fail, stateOf } = createTestBreaker()
    fail('a', 1)
    fail('b', 2)
    expect(stateOf()).toEqual(CLOSED)
    fail('b', 1)
    expect(stateOf()).toEqual(OPEN_FOR_ALL)

    const other = createTestBreaker()
    other.succeed('a', 3)
    other.succeed('b', 2)
    other.fail('a', 2)
    other.fail('b', 2)
    expect(other.stateOf()).toEqual(CLOSED)
    other.fail('b', 1)
    expect(other.stateOf()).toEqual(OPEN_FOR_ALL)
  })

  it('opens by default at half of 20 requests within 30 seconds', () => {
    const breaker = createCircuitBreaker()
    const end = (scope: string, outcome: 'recordSuccess' | 'recordFailure'): void =>
      breaker.admit({ circuit: 'p/m', scope, now: 0, hasAlternative: false })?.[outcome](0)
    for (let count = 0; count < 5; count += 1) {
      end('a', 'recordSuccess')
      end('b', 'recordSuccess')
      end('a', 'recordFailure')
      if (count < 4) end('b', 'recordFailure')
    }
    expect(breaker.isOpen('p/m', 'a')).toBe(false)
    end('b', 'recordFailure')
    expect(breaker.isOpen('p/m', 'a')).toBe(true)
  })

  it('ignores requests that are older than the window', () => {
    const { clock, fail, stateOf, breaker } = createTestBreaker()
    fail('a', 2)
    fail('b', 1)
    clock.now += 10_000
    fail('b', 1)
    expect(stateOf()).toEqual(CLOSED)
    clock.now += 10_000
    expect(breaker.reports(clock.now)).toEqual({})
  })

  it('stays closed for all keys while only one of several keys fails', () => {
    const { fail, succeed, stateOf, admit } = createTestBreaker()
    succeed('b')
    fail('a', 1000)
    expect(stateOf()).toEqual(CLOSED)
    expect([admit({ key: 'a' }), admit({ key: 'b' })]).not.toContain(undefined)
  })

  it('stays closed for many failures of one key and few of others', () => {
    const { fail, succeed, stateOf } = createTestBreaker()
    succeed('b', 7)
    fail('a', 1000)
    fail('b', 2)
    expect(stateOf()).toEqual(CLOSED)
    fail('b', 1)
    expect(stateOf()).toEqual(OPEN_FOR_ALL)
  })

  it('counts a key as active as soon as its request begins', () => {
    const { fail, admit, stateOf } = createTestBreaker()
    expect(admit({ key: 'b' })).toBeDefined()
    fail('a', 100)
    expect(stateOf()).toEqual(CLOSED)
  })

  it('opens for a single key while that key is the only active one', () => {
    const { fail, admit, stateOf } = createTestBreaker()
    fail('a', 4)
    expect(stateOf()).toEqual(OPEN_FOR_ONE)
    expect(admit({ key: 'a', hasAlternative: true })).toBeUndefined()
    expect(admit({ key: 'b', hasAlternative: true })).toBeDefined()
  })

  it('opens for all keys when it is open for one key and the requests of others fail', () => {
    const { fail, stateOf } = createTestBreaker()
    fail('a', 4)
    fail('b', 1)
    expect(stateOf()).toEqual(OPEN_FOR_ALL)
  })

  it('counts each request once, and does not count undecided ones', () => {
    const { admit, stateOf, clock } = createTestBreaker()
    const pass = admit()
    for (let count = 0; count < 10; count += 1) pass?.recordFailure(clock.now)
    for (let count = 0; count < 10; count += 1) admit()?.discard()
    expect(stateOf()).toEqual(CLOSED)
  })

  it('belongs to one model of one provider', () => {
    const { fail, admit } = createTestBreaker()
    fail('a', 4)
    expect(admit({ circuit: 'p/m', hasAlternative: true })).toBeUndefined()
    expect(admit({ circuit: 'p/other', hasAlternative: true })).toBeDefined()
    expect(admit({ circuit: 'q/m', hasAlternative: true })).toBeDefined()
  })
})

describe('an open circuit', () => {
  it('rejects requests that have another candidate until openMs has passed, then admits one', () => {
    const { clock, admit, stateOf } = createOpenCircuit()
    clock.now += 4999
    expect(admit({ hasAlternative: true })).toBeUndefined()
    clock.now += 1
    expect(stateOf()).toEqual({ state: 'half-open', isForAllKeys: true })
    expect(admit({ hasAlternative: true })).toBeDefined()
    expect(admit({ hasAlternative: true })).toBeUndefined()
    expect(admit({ key: 'b', hasAlternative: true })).toBeUndefined()
  })

  it('admits one request per second of each key that has no other candidate', () => {
    const { clock, admit, breaker } = createOpenCircuit()
    expect(admit({ key: 'a' })).toBeDefined()
    expect(admit({ key: 'a' })).toBeUndefined()
    expect(admit({ key: 'b' })).toBeDefined()
    expect(breaker.waitMs('p/m', 'a', clock.now + 400)).toBe(600)
    clock.now += 999
    expect(admit({ key: 'a' })).toBeUndefined()
    clock.now += 1
    expect(admit({ key: 'a' })).toBeDefined()
  })

  it('closes when a probe succeeds, and counts from zero', () => {
    const { admit, clock, stateOf, fail } = createOpenCircuit()
    admit()?.recordSuccess(clock.now)
    expect(stateOf()).toEqual(CLOSED)
    fail('a', 1)
    fail('b', 1)
    expect(stateOf()).toEqual(CLOSED)
  })

  it('closes when the second of two probes succeeds', () => {
    const { admit, clock, stateOf } = createOpenCircuit()
    const [one, two] = [admit({ key: 'a' }), admit({ key: 'b' })]
    one?.recordFailure(clock.now)
    two?.recordSuccess(clock.now)
    expect(stateOf()).toEqual(CLOSED)
  })

  it('stays open for another openMs when its probe fails', () => {
    const { admit, clock, stateOf } = createOpenCircuit()
    clock.now += 5000
    const probe = admit({ hasAlternative: true })
    clock.now += 100
    probe?.recordFailure(clock.now)
    expect(stateOf()).toEqual(OPEN_FOR_ALL)
    clock.now += 4999
    expect(admit({ hasAlternative: true })).toBeUndefined()
    clock.now += 1
    expect(admit({ hasAlternative: true })).toBeDefined()
  })

  it('admits another probe immediately after an undecided one, and after openMs if a probe never ends', () => {
    const { admit, clock } = createOpenCircuit()
    clock.now += 5000
    admit({ hasAlternative: true })?.discard()
    expect(admit({ hasAlternative: true })).toBeDefined()
    clock.now += 4999
    expect(admit({ hasAlternative: true })).toBeUndefined()
    clock.now += 1
    expect(admit({ hasAlternative: true })).toBeDefined()
  })

  it('ignores requests that began before it opened', () => {
    const circuit = createTestBreaker()
    const [good, bad] = [circuit.admit({ key: 'a' }), circuit.admit({ key: 'a' })]
    circuit.fail('a', 2)
    circuit.fail('b', 2)
    circuit.clock.now += 4000
    good?.recordSuccess(circuit.clock.now)
    bad?.recordFailure(circuit.clock.now)
    expect(circuit.stateOf()).toEqual(OPEN_FOR_ALL)
    circuit.clock.now += 1000
    expect(circuit.admit({ hasAlternative: true })).toBeDefined()
  })
})

describe('the circuits of a breaker', () => {
  it('contains at most 1,000 circuits and removes the least recently used', () => {
    const { admit, breaker, clock } = createTestBreaker()
    for (let index = 0; index < 3000; index += 1) {
      admit({ circuit: 'p/used' })
      admit({ circuit: `p/${index}` })
    }
    const names = Object.keys(breaker.reports(clock.now))
    expect(names).toHaveLength(1000)
    expect(names).toContain('p/used')
  })

  it('works with more keys than it counts separately', () => {
    const { fail, stateOf } = createTestBreaker()
    for (let index = 0; index < 500; index += 1) fail(`key-${index}`)
    expect(stateOf()).toEqual(OPEN_FOR_ALL)
  })
})

it('a request is always admitted within one second without, and within openMs with, another candidate', () => {
  const step = fc.record({
    kind: fc.constantFrom('recordFailure', 'recordSuccess', 'discard', 'never ends'),
    key: fc.constantFrom('a', 'b', 'c'),
    hasAlternative: fc.boolean(),
    afterMs: fc.nat(3000),
  })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), fc.boolean(), (steps, hasAlternative) => {
      const { admit, clock } = createTestBreaker()
      for (const { kind, key, afterMs, hasAlternative: other } of steps) {
        clock.now += afterMs
        const pass = admit({ key, hasAlternative: other })
        if (kind === 'discard') pass?.discard()
        else if (kind !== 'never ends') pass?.[kind](clock.now)
      }
      clock.now += hasAlternative ? 5000 : 1000
      expect(admit({ hasAlternative })).toBeDefined()
    }),
  )
})
