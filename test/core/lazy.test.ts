import { expect, it } from 'vitest'
import { lazy } from '../../src/core/async.ts'

it('loads a value once, even for concurrent calls', async () => {
  let loads = 0
  const value = lazy(async () => (loads += 1))
  expect(loads).toBe(0)
  expect(await Promise.all([value(), value(), value()])).toEqual([1, 1, 1])
  expect(await value()).toBe(1)
})

it.each([
  ['rejects', () => Promise.reject(new Error('no such module'))],
  [
    'throws',
    () => {
      throw new Error('no such module')
    },
  ],
])('loads a value again if its first load %s', async (_, fail) => {
  let loads = 0
  const value = lazy<string>(() => ((loads += 1) === 1 ? fail() : Promise.resolve('loaded')))
  const both = await Promise.allSettled([value(), value()])
  expect(both.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
  expect(await value()).toBe('loaded')
  expect(loads).toBe(2)
})
