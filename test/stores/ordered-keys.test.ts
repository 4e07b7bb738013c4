import { expect, it } from 'vitest'
import { ExpiryQueue, OrderedKeys, type Schedulable } from '../../src/stores/memory/collections.ts'
import { fc } from '../support/properties.ts'

it('lists the same keys as sorting and filtering after any additions and removals', () => {
  const key = fc.string({ unit: fc.constantFrom('a', 'b', ':', '\ud800'), maxLength: 5 })
  const change = fc.tuple(fc.boolean(), key)
  const query = fc.tuple(fc.string({ unit: fc.constantFrom('a', ':'), maxLength: 2 }), fc.option(key), fc.nat(20))
  fc.assert(
    fc.property(fc.array(change, { maxLength: 200 }), query, (changes, [prefix, after, limit]) => {
      const keys = new OrderedKeys()
      const plain = new Set<string>()
      for (const [adds, text] of changes) {
        if (adds) keys.add(text)
        else keys.remove(text)
        if (adds) plain.add(text)
        else plain.delete(text)
      }
      const expected = [...plain].filter((text) => text.startsWith(prefix) && (after === null || text > after)).sort()
      expect(keys.list(prefix, after ?? undefined, limit)).toEqual(expected.slice(0, limit))
    }),
  )
})

it('keeps thousands of keys in order over many buckets', () => {
  const keys = new OrderedKeys()
  const names = Array.from({ length: 5_000 }, (_, n) => String((n * 2_003) % 5_000).padStart(4, '0'))
  for (const name of names) keys.add(name)
  for (const name of names) if (Number(name) % 3 === 0) keys.remove(name)
  const left = names.filter((name) => Number(name) % 3 !== 0).toSorted()
  expect(keys.list('', undefined, 10_000)).toEqual(left)
  expect(keys.list('12', '1234', 3)).toEqual(left.filter((name) => name > '1234').slice(0, 3))
})

it('returns scheduled, rescheduled and removed items once, in order, at their last due time', () => {
  const change = fc.tuple(fc.nat(9), fc.option(fc.nat(100)))
  fc.assert(
    fc.property(fc.array(change, { maxLength: 300 }), (changes) => {
      const queue = new ExpiryQueue<Schedulable & { readonly id: number }>()
      const items = Array.from({ length: 10 }, (_, id) => ({ id, dueAt: Infinity, position: 0 }))
      const expected = new Map<number, number>()
      for (const [id, at] of changes) {
        queue.schedule(items[id]!, at ?? Infinity)
        if (at === null) expected.delete(id)
        else expected.set(id, at)
      }
      const came: [number, number][] = []
      for (let now = 0; now <= 100; now += 1) {
        expect(queue.peek()?.dueAt ?? Infinity).toBe(Math.min(...items.map(({ dueAt }) => dueAt)))
        queue.forEachDue(now, (item) => came.push([item.id, now]))
      }
      expect(came.toSorted()).toEqual([...expected].toSorted())
    }),
  )
})
