import type { Embedder } from '../core/ports.ts'
import type { TestApi } from './test-api.ts'

const TEXTS = ['What is the capital of France?', 'How do I boil an egg?', '法国的首都是什么？', 'x', 'a '.repeat(5000)]

/** Declares the tests that every `Embedder` must pass. */
export function testEmbedder(name: string, make: () => Embedder, api: Omit<TestApi, 'beforeEach' | 'afterEach'>): void {
  const { describe, expect, it } = api
  describe(`${name} holds the embedder contract`, () => {
    it('gives one vector of its dimensions for each text, in their order', async () => {
      const embedder = make()
      const together = await embedder.embed(TEXTS)

      expect(together).toHaveLength(TEXTS.length)
      for (const [index, text] of TEXTS.entries()) {
        const [alone] = await embedder.embed([text])

        expect(together[index]).toHaveLength(embedder.dimensions)
        expect(together[index]).toEqual(alone)
      }
    })

    it('gives vectors of length 1', async () => {
      for (const vector of await make().embed(TEXTS)) {
        expect(Math.hypot(...vector)).toBeCloseTo(1, 4)
      }
    })

    it('gives no vector for no text', async () => {
      expect(await make().embed([])).toEqual([])
    })

    it('tells texts of different subjects apart', async () => {
      const [france = [], egg = []] = await make().embed(TEXTS)
      const similarity = Array.from(france).reduce((sum, value, index) => sum + value * (egg[index] ?? 0), 0)

      expect(similarity).toBeLessThan(0.85)
    })

    it('has a name', () => {
      expect(make().name).not.toBe('')
    })
  })
}
