import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createCircuitBreaker, type CircuitBreaker, type CircuitPermit } from '../../src/providers/circuit-breaker.ts'

const OPTIONS = { failureRate: 0.5, minRequests: 4, windowMs: 10_000, openMs: 5000, probesPerSecond: 1 }

interface Asking {
  readonly key?: string
  readonly hasAlternative?: boolean
  readonly circuit?: string
}

/** A breaker with a clock that the test moves. */
function breakerAt(options = OPTIONS) {
  const breaker: CircuitBreaker = createCircuitBreaker(options)
  const world = { now: 100_000 }
  const admit = ({ key = 'a', hasAlternative = false, circuit = 'p/m' }: Asking = {}): CircuitPermit | undefined =>
    breaker.admit({ circuit, keyId: key, now: world.now, hasAlternative })
  const fail = (key = 'a', times = 1): void => {
    for (let count = 0; count < times; count += 1) admit({ key })?.recordFailure(world.now)
  }
  const succeed = (key = 'a', times = 1): void => {
    for (let count = 0; count < times; count += 1) admit({ key })?.recordSuccess(world.now)
  }
  const stateOf = (): unknown => breaker.reports(world.now)['p/m']
  return { breaker, world, admit, fail, succeed, stateOf }
}

const OPEN_FOR_ALL = { state: 'open', isForAllKeys: true }
const OPEN_FOR_ONE = { state: 'open', isForAllKeys: false }
const CLOSED = { state: 'closed', isForAllKeys: true }

/** A circuit that the failures of two keys opened. */
function opened() {
  const room = breakerAt()
  room.fail('a', 2)
  room.fail('b', 2)
  expect(room.stateOf()).toEqual(OPEN_FOR_ALL)
  return room
}

describe('a closed circuit', () => {
  it('opens at the failure rate, and not below the minimum number of requests', () => {
    const { fail, stateOf } = breakerAt()
    fail('a', 1)
    fail('b', 2)
    expect(stateOf()).toEqual(CLOSED)
    fail('b', 1)
    expect(stateOf()).toEqual(OPEN_FOR_ALL)

    const other = breakerAt()
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
    const end = (keyId: string, outcome: 'recordSuccess' | 'recordFailure'): void =>
      breaker.admit({ circuit: 'p/m', keyId, now: 0, hasAlternative: false })?.[outcome](0)
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
    const { world, fail, stateOf, breaker } = breakerAt()
    fail('a', 2)
    fail('b', 1)
    world.now += 10_000
    fail('b', 1)
    expect(stateOf()).toEqual(CLOSED)
    world.now += 10_000
    expect(breaker.reports(world.now)).toEqual({})
  })

  it('stays closed for all keys while only one of several keys fails', () => {
    const { fail, succeed, stateOf, admit } = breakerAt()
    succeed('b')
    fail('a', 1000)
    expect(stateOf()).toEqual(CLOSED)
    expect([admit({ key: 'a' }), admit({ key: 'b' })]).not.toContain(undefined)
  })

  it('stays closed for many failures of one key and few of others', () => {
    const { fail, succeed, stateOf } = breakerAt()
    succeed('b', 7)
    fail('a', 1000)
    fail('b', 2)
    expect(stateOf()).toEqual(CLOSED)
    fail('b', 1)
    expect(stateOf()).toEqual(OPEN_FOR_ALL)
  })

  it('counts a key as active as soon as its request begins', () => {
    const { fail, admit, stateOf } = breakerAt()
    expect(admit({ key: 'b' })).toBeDefined()
    fail('a', 100)
    expect(stateOf()).toEqual(CLOSED)
  })

  it('opens for a single key while that key is the only active one', () => {
    const { fail, admit, stateOf } = breakerAt()
    fail('a', 4)
    expect(stateOf()).toEqual(OPEN_FOR_ONE)
    expect(admit({ key: 'a', hasAlternative: true })).toBeUndefined()
    expect(admit({ key: 'b', hasAlternative: true })).toBeDefined()
  })

  it('opens for all keys when it is open for one key and the requests of others fail', () => {
    const { fail, stateOf } = breakerAt()
    fail('a', 4)
    fail('b', 1)
    expect(stateOf()).toEqual(OPEN_FOR_ALL)
  })

  it('counts each request once, and does not count undecided ones', () => {
    const { admit, stateOf, world } = breakerAt()
    const pass = admit()
    for (let count = 0; count < 10; count += 1) pass?.recordFailure(world.now)
    for (let count = 0; count < 10; count += 1) admit()?.discard()
    expect(stateOf()).toEqual(CLOSED)
  })

  it('belongs to one model of one provider', () => {
    const { fail, admit } = breakerAt()
    fail('a', 4)
    expect(admit({ circuit: 'p/m', hasAlternative: true })).toBeUndefined()
    expect(admit({ circuit: 'p/other', hasAlternative: true })).toBeDefined()
    expect(admit({ circuit: 'q/m', hasAlternative: true })).toBeDefined()
  })
})

describe('an open circuit', () => {
  it('rejects requests that have another candidate until openMs has passed, then admits one', () => {
    const { world, admit, stateOf } = opened()
    world.now += 4999
    expect(admit({ hasAlternative: true })).toBeUndefined()
    world.now += 1
    expect(stateOf()).toEqual({ state: 'half-open', isForAllKeys: true })
    expect(admit({ hasAlternative: true })).toBeDefined()
    expect(admit({ hasAlternative: true })).toBeUndefined()
    expect(admit({ key: 'b', hasAlternative: true })).toBeUndefined()
  })

  it('admits one request per second of each key that has no other candidate', () => {
    const { world, admit, breaker } = opened()
    expect(admit({ key: 'a' })).toBeDefined()
    expect(admit({ key: 'a' })).toBeUndefined()
    expect(admit({ key: 'b' })).toBeDefined()
    expect(breaker.waitMs('p/m', 'a', world.now + 400)).toBe(600)
    world.now += 999
    expect(admit({ key: 'a' })).toBeUndefined()
    world.now += 1
    expect(admit({ key: 'a' })).toBeDefined()
  })

  it('closes when a probe succeeds, and counts from zero', () => {
    const { admit, world, stateOf, fail } = opened()
    admit()?.recordSuccess(world.now)
    expect(stateOf()).toEqual(CLOSED)
    fail('a', 1)
    fail('b', 1)
    expect(stateOf()).toEqual(CLOSED)
  })

  it('closes when the second of two probes succeeds', () => {
    const { admit, world, stateOf } = opened()
    const [one, two] = [admit({ key: 'a' }), admit({ key: 'b' })]
    one?.recordFailure(world.now)
    two?.recordSuccess(world.now)
    expect(stateOf()).toEqual(CLOSED)
  })

  it('stays open for another openMs when its probe fails', () => {
    const { admit, world, stateOf } = opened()
    world.now += 5000
    const probe = admit({ hasAlternative: true })
    world.now += 100
    probe?.recordFailure(world.now)
    expect(stateOf()).toEqual(OPEN_FOR_ALL)
    world.now += 4999
    expect(admit({ hasAlternative: true })).toBeUndefined()
    world.now += 1
    expect(admit({ hasAlternative: true })).toBeDefined()
  })

  it('admits another probe immediately after an undecided one, and after openMs if a probe never ends', () => {
    const { admit, world } = opened()
    world.now += 5000
    admit({ hasAlternative: true })?.discard()
    expect(admit({ hasAlternative: true })).toBeDefined()
    world.now += 4999
    expect(admit({ hasAlternative: true })).toBeUndefined()
    world.now += 1
    expect(admit({ hasAlternative: true })).toBeDefined()
  })

  it('ignores requests that began before it opened', () => {
    const room = breakerAt()
    const [good, bad] = [room.admit({ key: 'a' }), room.admit({ key: 'a' })]
    room.fail('a', 2)
    room.fail('b', 2)
    room.world.now += 4000
    good?.recordSuccess(room.world.now)
    bad?.recordFailure(room.world.now)
    expect(room.stateOf()).toEqual(OPEN_FOR_ALL)
    room.world.now += 1000
    expect(room.admit({ hasAlternative: true })).toBeDefined()
  })
})

describe('the circuits of a breaker', () => {
  it('contains at most 1,000 circuits and removes the least recently used', () => {
    const { admit, breaker, world } = breakerAt()
    for (let index = 0; index < 3000; index += 1) {
      admit({ circuit: 'p/used' })
      admit({ circuit: `p/${index}` })
    }
    const names = Object.keys(breaker.reports(world.now))
    expect(names).toHaveLength(1000)
    expect(names).toContain('p/used')
  })

  it('works with more keys than it counts separately', () => {
    const { fail, stateOf } = breakerAt()
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
      const { admit, world } = breakerAt()
      for (const { kind, key, afterMs, hasAlternative: other } of steps) {
        world.now += afterMs
        const pass = admit({ key, hasAlternative: other })
        if (kind === 'discard') pass?.discard()
        else if (kind !== 'never ends') pass?.[kind](world.now)
      }
      world.now += hasAlternative ? 5000 : 1000
      expect(admit({ hasAlternative })).toBeDefined()
    }),
  )
})
