import * as fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createCircuits } from '../../src/providers/circuits.ts'

const options = { failures: 3, coolDownMs: 1000 }

describe('a circuit', () => {
  it('opens after so many failures in a row, and a success in between starts the count anew', () => {
    const circuits = createCircuits(options)
    for (const at of [1, 2]) circuits.failed('a', at)
    circuits.succeeded('a')
    for (const at of [3, 4]) circuits.failed('a', at)
    expect(circuits.admits('a', 5)).toBe(true)
    expect(circuits.states(5)).toEqual({})
    circuits.failed('a', 5)
    expect(circuits.admits('a', 6)).toBe(false)
    expect(circuits.admits('b', 6)).toBe(true)
    expect(circuits.states(6)).toEqual({ a: 'open' })
    expect(circuits.waitMs('a', 6)).toBe(999)
    expect(circuits.waitMs('b', 6)).toBe(0)
  })

  it('lets one call through after the cool-down, and closes when that one succeeds', () => {
    const circuits = opened()
    expect(circuits.admits('a', 999)).toBe(false)
    expect(circuits.states(1000)).toEqual({ a: 'half-open' })
    expect(circuits.admits('a', 1000)).toBe(true)
    expect(circuits.admits('a', 1000)).toBe(false)
    circuits.succeeded('a')
    expect(circuits.admits('a', 1001)).toBe(true)
    expect(circuits.states(1001)).toEqual({})
  })

  it('opens again for the whole cool-down when the one call fails', () => {
    const circuits = opened()
    expect(circuits.admits('a', 1500)).toBe(true)
    circuits.failed('a', 1600)
    expect(circuits.admits('a', 2599)).toBe(false)
    expect(circuits.admits('a', 2600)).toBe(true)
  })

  it('lets another call through when the one call was left, and also when it never ends', () => {
    const circuits = opened()
    expect(circuits.admits('a', 1000)).toBe(true)
    circuits.undecided('a')
    expect(circuits.admits('a', 1001)).toBe(true)
    expect(circuits.admits('a', 2000)).toBe(false)
    expect(circuits.admits('a', 2001)).toBe(true)
  })

  it('is not opened for longer by calls that were under way when it opened', () => {
    const circuits = opened()
    circuits.failed('a', 900)
    expect(circuits.admits('a', 1000)).toBe(true)
  })

  it('is one of a bounded number', () => {
    const circuits = createCircuits({ failures: 1 })
    for (let index = 0; index < 3000; index += 1) circuits.failed(`provider-${index}`, index)
    expect(Object.keys(circuits.states(3000))).toHaveLength(1000)
  })

  it('always admits a call again once it has been left alone for a cool-down', () => {
    const event = fc.record({ kind: fc.constantFrom('ask', 'fail', 'succeed', 'leave'), after: fc.nat(700) })
    fc.assert(
      fc.property(fc.array(event), (events) => {
        const circuits = createCircuits(options)
        let now = 0
        for (const { kind, after } of events) {
          now += after
          if (kind === 'ask') circuits.admits('a', now)
          else if (kind === 'fail') circuits.failed('a', now)
          else if (kind === 'succeed') circuits.succeeded('a')
          else circuits.undecided('a')
        }
        expect(circuits.waitMs('a', now)).toBeLessThanOrEqual(1000)
        expect(circuits.admits('a', now + 1000)).toBe(true)
      }),
    )
  })
})

function opened(): ReturnType<typeof createCircuits> {
  const circuits = createCircuits(options)
  for (let count = 0; count < 3; count += 1) circuits.failed('a', 0)
  return circuits
}
