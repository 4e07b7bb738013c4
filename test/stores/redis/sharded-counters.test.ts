import { describe, expect, it } from 'vitest'
import { counterName } from '../../../src/governance/limits.ts'
import { rowTallyName } from '../../../src/governance/usage-rows.ts'
import { billedTallyName, modelTallyName, totalTallyName } from '../../../src/governance/windows.ts'
import { ownerOf } from '../../../src/stores/redis/sharded-counters.ts'

describe('the owner of a counter or tally in a cluster', () => {
  it.each(['key:k1', 'shared:b1', 'customer:acme', 'user:acme/u%401', 'session:acme/run_42', 'user:~k1/u'])(
    '%s has its counters and billed amounts in one slot',
    (owner) => {
      const names = [
        counterName('requests', owner, '1m', { start: 60_000 }),
        counterName('tokens', owner, 'rolling-1d', { start: 0 }),
        counterName('budget', owner, '1M-%2aopus%2a', { start: 0 }),
        counterName('budget', owner, 'idle', { start: 0 }),
        billedTallyName(owner, 0),
      ]
      expect(new Set(names.map(ownerOf))).toEqual(new Set([owner]))
    },
  )

  it.each(['customer:acme', 'key:k1'])('%s has the rows of its usage in the same slot', (owner) => {
    expect(ownerOf(rowTallyName(owner, 86_400_000, 7))).toBe(owner)
  })

  it('is the key for the usage of a key', () => {
    expect(ownerOf(totalTallyName('k1', '1d', 0))).toBe('key:k1')
    expect(ownerOf(modelTallyName('k1', '1d', 0))).toBe('key:k1')
  })

  it('is the whole name for any other name', () => {
    expect(ownerOf('budget:someone:1d:0')).toBe('budget:someone:1d:0')
    expect(ownerOf('anything')).toBe('anything')
  })
})
