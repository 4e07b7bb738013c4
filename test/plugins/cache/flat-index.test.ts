import { describe, expect, it } from 'vitest'
import { testVectorIndex } from '../../contract/vector-index.ts'
import { flatIndex } from './fixture.ts'

testVectorIndex('the flat index', async (clock) => flatIndex({ now: clock.now, dimensions: 16 }), {
  dimensions: 16,
  entries: 100_000,
})
testVectorIndex('the flat index in 1024 dimensions', async (clock) => flatIndex({ now: clock.now }), {
  dimensions: 1024,
  entries: 100_000,
})

function unit(...values: readonly number[]): Float32Array {
  const length = Math.hypot(...values)
  return Float32Array.from(values, (value) => value / length)
}

describe('the flat index', () => {
  const options = { dimensions: 2 }
  const everything = { minSimilarity: -1, limit: 100 }

  it('removes the least recently used entry when it is full', async () => {
    const index = flatIndex({ ...options, maxEntries: 2 })
    await index.add({ id: 'a', scope: 's', vector: unit(1, 0), expiresAt: 1 })
    await index.add({ id: 'b', scope: 's', vector: unit(0, 1), expiresAt: 1 })
    await index.nearest('s', unit(1, 0), { minSimilarity: 0.9, limit: 1 })
    await index.add({ id: 'c', scope: 't', vector: unit(1, 1), expiresAt: 1 })

    expect((await index.nearest('s', unit(1, 0), everything)).map(({ id }) => id)).toEqual(['a'])
    expect(await index.nearest('t', unit(1, 0), everything)).toHaveLength(1)
  })

  it('stays within its bytes', async () => {
    const index = flatIndex({ ...options, maxBytes: 5000 })
    for (let entry = 0; entry < 100; entry += 1) {
      await index.add({ id: String(entry), scope: 's', vector: unit(1, entry), expiresAt: 1 })
    }
    const found = await index.nearest('s', unit(1, 1), everything)

    expect(found.length).toBeGreaterThan(0)
    expect(found.length).toBeLessThan(12)
  })

  it('stores nothing when no entry fits', async () => {
    const index = flatIndex({ ...options, maxBytes: 10 })
    await index.add({ id: 'a', scope: 's', vector: unit(1, 0), expiresAt: 1 })

    expect(await index.nearest('s', unit(1, 0), everything)).toEqual([])
  })

  it('pauses in long searches and misses no entry that was present at their start', async () => {
    const count = 9000
    let pauses = 0
    const index = flatIndex({
      ...options,
      pause: async () => {
        pauses += 1
        // During the pause, half of the scanned entries are removed and one is added.
        if (pauses > 1) return
        for (let entry = 0; entry < count / 2; entry += 1) await index.remove(String(entry))
        await index.add({ id: 'new', scope: 's', vector: unit(1, 0), expiresAt: 1 })
      },
    })
    for (let entry = 0; entry < count; entry += 1) {
      const vector = unit(1, entry === count - 1 ? 0 : 0.1)
      await index.add({ id: String(entry), scope: 's', vector, expiresAt: 1 })
    }
    const [nearest] = await index.nearest('s', unit(1, 0), { minSimilarity: 0.9, limit: 1 })

    expect(pauses).toBeGreaterThan(0)
    expect(nearest?.id).toBe(String(count - 1))
    expect(await index.nearest('s', unit(1, 0), { minSimilarity: 0.9, limit: count })).toHaveLength(count / 2 + 1)
  })

  it('does not return an entry that was removed during the search', async () => {
    let paused = false
    const index = flatIndex({
      ...options,
      pause: async () => {
        if (!paused) await index.remove('0')
        paused = true
      },
    })
    for (let entry = 0; entry < 5000; entry += 1) {
      await index.add({ id: String(entry), scope: 's', vector: unit(1, entry === 0 ? 0 : 1), expiresAt: 1 })
    }
    const found = await index.nearest('s', unit(1, 0), { minSimilarity: 0.5, limit: 3 })

    expect(paused).toBe(true)
    expect(found.map(({ id }) => id)).not.toContain('0')
  })
})
