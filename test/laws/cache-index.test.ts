import { describe, expect, it } from 'vitest'
import { dotProduct } from '../../src/plugins/cache/flat-index.ts'
import { flatIndex } from '../plugins/cache/fixture.ts'
import { cases, fc } from '../support/properties.ts'

const DIMENSIONS = 1024

/** Adds in the same order as the index, so that both round identically. */
function cosine(left: Float32Array, right: Float32Array): number {
  const head = DIMENSIONS / 4
  return dotProduct(left, right, 0, head) + dotProduct(left, right, head)
}

function unit(values: readonly number[]): Float32Array {
  const length = Math.hypot(...values)
  return Float32Array.from(values, (value) => (length === 0 ? 1 / Math.sqrt(values.length) : value / length))
}

/** A vector near one of a few centers, so that similarities lie on both sides of every threshold. */
const vector = fc
  .record({ centre: fc.integer({ min: 1, max: 4 }), noise: fc.integer({ min: 0, max: 60 }), seed: fc.integer() })
  .map(({ centre, noise, seed }) => {
    const wave = (index: number, phase: number): number =>
      Math.sin(index * phase * 12.9898 + phase * 78.233) * 43_758.5453
    const fraction = (value: number): number => value - Math.floor(value) - 0.5
    const other = (Math.abs(seed) % 10_007) + 5
    return unit(
      Array.from(
        { length: DIMENSIONS },
        (_, index) => fraction(wave(index, centre)) + (noise / 100) * fraction(wave(index, other)),
      ),
    )
  })

describe('the law of the index', () => {
  it('finds exactly what a comparison with every vector finds, at any threshold', async () => {
    let found = 0
    await fc.assert(
      fc.asyncProperty(
        fc.array(vector, { minLength: 1, maxLength: 25 }),
        vector,
        fc.double({ min: -1, max: 1, noNaN: true }).map((least) => Math.fround(least)),
        async (vectors, query, least) => {
          const index = flatIndex()
          for (const [place, stored] of vectors.entries()) {
            await index.add({ id: String(place), scope: 's', vector: stored, expiresAt: 1 })
          }
          const expected = vectors
            .map((stored, place) => ({ id: String(place), similarity: cosine(stored, query) }))
            .filter(({ similarity }) => similarity >= least)
            .sort((one, other) => other.similarity - one.similarity)
          const neighbours = await index.nearest('s', query, { minSimilarity: least, limit: 100 })

          expect(neighbours).toEqual(expected)
          found += neighbours.length
        },
      ),
      { numRuns: cases(60) },
    )

    expect(found).toBeGreaterThan(0)
  })

  it('finds the same with signatures, after half of the vectors were removed', async () => {
    const vectors = fc.sample(vector, { numRuns: 800, seed: 1 })
    const index = flatIndex()
    for (const [place, stored] of vectors.entries()) {
      await index.add({ id: String(place), scope: 's', vector: stored, expiresAt: 1 })
    }
    for (let place = 0; place < vectors.length; place += 2) await index.remove(String(place))
    const kept = vectors.flatMap((stored, place) => (place % 2 === 0 ? [] : [{ id: String(place), stored }]))
    for (const query of vectors.slice(0, 20)) {
      for (const minSimilarity of [0.85, 0.95]) {
        const expected = kept
          .map(({ id, stored }) => ({ id, similarity: cosine(stored, query) }))
          .filter(({ similarity }) => similarity >= minSimilarity)
          .sort((one, other) => other.similarity - one.similarity)

        expect(await index.nearest('s', query, { minSimilarity, limit: 1000 })).toEqual(expected)
        expect(expected.length).toBeLessThan(kept.length)
      }
    }
  })
})
