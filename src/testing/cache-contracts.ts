import type { ResponseStore, CachedResponse, Embedder, VectorIndex } from '../core/cache.ts'
import type { TestApi, TestClock } from './store-suite.ts'

/** Dimensions and capacity of the vector index under test. */
export interface IndexLimits {
  readonly dimensions: number
  /** Number of entries that the index can store. The tests add at most 300. */
  readonly entries: number
}

const LATER = 1_000_000

/**
 * Declares the tests that every `VectorIndex` must pass.
 *
 * @example
 * testVectorIndex('myIndex', async (clock) => myIndex({ now: clock.now }), { dimensions: 8, entries: 1000 }, {
 *   afterEach, beforeEach, describe, expect, it,
 * })
 */
export function testVectorIndex(
  name: string,
  make: (clock: TestClock) => Promise<VectorIndex>,
  limits: IndexLimits,
  api: TestApi,
): void {
  const { beforeEach, describe, expect, it } = api
  const { dimensions } = limits
  const cosine = (degrees: number): number => Math.cos((degrees / 180) * Math.PI)

  /** The similarity of two vectors is the cosine of the angle between them. */
  const vectorAt = (degrees: number): Float32Array => {
    const vector = new Float32Array(dimensions)
    vector[0] = cosine(degrees)
    vector[1] = Math.sin((degrees / 180) * Math.PI)
    return vector
  }

  describe(`${name} fulfills the vector index contract`, () => {
    let time = 0
    let index: VectorIndex
    const clock: TestClock = { now: () => time, advance: (ms) => void (time += ms) }
    const add = async (id: string, degrees: number, scope = 's', expiresAt = LATER): Promise<void> =>
      index.add({ id, scope, vector: vectorAt(degrees), expiresAt })
    const find = async (degrees: number, minSimilarity = 0.9, limit = 10, scope = 's'): Promise<readonly string[]> =>
      (await index.nearest(scope, vectorAt(degrees), { minSimilarity, limit })).map((neighbor) => neighbor.id)

    beforeEach(async () => {
      time = 0
      index = await make(clock)
    })

    it('returns no match from an empty scope', async () => {
      expect(await find(0)).toEqual([])
    })

    it('returns neighbors with their cosine, nearest first', async () => {
      await add('far', 20)
      await add('near', 5)
      await add('same', 0)
      const neighbors = await index.nearest('s', vectorAt(0), { minSimilarity: 0.9, limit: 10 })
      expect(neighbors.map((neighbor) => neighbor.id)).toEqual(['same', 'near', 'far'])
      expect(neighbors[0]?.similarity).toBeCloseTo(1, 5)
      expect(neighbors[1]?.similarity).toBeCloseTo(cosine(5), 5)
      expect(neighbors[2]?.similarity).toBeCloseTo(cosine(20), 5)
    })

    it('omits vectors below the minimum similarity, including opposite ones', async () => {
      await add('near', 10)
      await add('far', 30)
      await add('opposite', 180)
      expect(await find(0)).toEqual(['near'])
      expect(await find(0, -1)).toEqual(['near', 'far', 'opposite'])
    })

    it('returns at most the limit', async () => {
      for (let degrees = 1; degrees <= 8; degrees += 1) await add(`at ${degrees}`, degrees)
      expect(await find(0, 0.9, 3)).toEqual(['at 1', 'at 2', 'at 3'])
      expect(await find(0, 0.9, 0)).toEqual([])
    })

    it('returns no vector of another scope', async () => {
      await add('here', 0, 's')
      await add('there', 0, 't')
      expect(await find(0, 0.9, 10, 's')).toEqual(['here'])
      expect(await find(0, 0.9, 10, 't')).toEqual(['there'])
      expect(await find(0, -1, 10, 'u')).toEqual([])
    })

    it('replaces an entry with the same id, even in another scope', async () => {
      await add('one', 0)
      await add('one', 90)
      expect(await find(0)).toEqual([])
      expect(await find(90)).toEqual(['one'])
      await add('one', 90, 't')
      expect(await find(90)).toEqual([])
      expect(await find(90, 0.9, 10, 't')).toEqual(['one'])
    })

    it('stores a copy of a vector', async () => {
      const vector = vectorAt(0)
      await index.add({ id: 'one', scope: 's', vector, expiresAt: LATER })
      vector.fill(0)
      expect(await find(0)).toEqual(['one'])
    })

    it('does not return expired entries', async () => {
      await add('one', 0, 's', 1000)
      clock.advance(999)
      expect(await find(0)).toEqual(['one'])
      clock.advance(1)
      expect(await find(0)).toEqual([])
    })

    it('removes entries, and ignores unknown ids', async () => {
      await add('one', 0)
      await add('two', 0)
      await index.remove('one')
      await index.remove('unknown')
      expect(await find(0)).toEqual(['two'])
    })

    it('removes all entries when cleared', async () => {
      await add('one', 0)
      await add('two', 0, 't')
      await index.clear()
      expect(await find(0)).toEqual([])
      expect(await find(0, 0.9, 10, 't')).toEqual([])
    })

    it('retains entries while other entries are removed', async () => {
      const count = Math.min(limits.entries, 300)
      const step = 360 / count
      for (let entry = 0; entry < count; entry += 1) await add(String(entry), entry * step)
      for (let entry = 0; entry < count; entry += 3) await index.remove(String(entry))
      for (let entry = 0; entry < count; entry += 1) {
        const [nearest] = await find(entry * step, 0.999999, 1)
        expect(nearest).toBe(entry % 3 === 0 ? undefined : String(entry))
      }
    })

    it('rejects a vector of another length', async () => {
      const vector = new Float32Array(dimensions + 1).fill(1)
      await expect(async () => index.add({ id: 'x', scope: 's', vector, expiresAt: LATER })).rejects.toThrow()
    })
  })
}

const TEXTS = ['What is the capital of France?', 'How do I boil an egg?', '法国的首都是什么？', 'x', 'a '.repeat(5000)]

/**
 * Declares the tests that every `Embedder` must pass.
 *
 * @example
 * testEmbedder('myEmbedder', () => myEmbedder(), { describe, expect, it })
 */
export function testEmbedder(name: string, make: () => Embedder, api: Omit<TestApi, 'beforeEach' | 'afterEach'>): void {
  const { describe, expect, it } = api
  describe(`${name} fulfills the embedder contract`, () => {
    it('returns one vector of the declared length for each text, in order', async () => {
      const embedder = make()
      const together = await embedder.embed(TEXTS)
      expect(together).toHaveLength(TEXTS.length)
      for (const [index, text] of TEXTS.entries()) {
        const [alone] = await embedder.embed([text])
        expect(together[index]).toHaveLength(embedder.dimensions)
        expect(together[index]).toEqual(alone)
      }
    })

    it('returns unit vectors', async () => {
      for (const vector of await make().embed(TEXTS)) {
        expect(Math.hypot(...vector)).toBeCloseTo(1, 4)
      }
    })

    it('returns no vectors for an empty list', async () => {
      expect(await make().embed([])).toEqual([])
    })

    it('distinguishes texts on different subjects', async () => {
      const [france = [], egg = []] = await make().embed(TEXTS)
      const similarity = Array.from(france).reduce((sum, value, index) => sum + value * (egg[index] ?? 0), 0)
      expect(similarity).toBeLessThan(0.85)
    })

    it('has a name', () => {
      expect(make().name).not.toBe('')
    })
  })
}

const YEAR_2100 = Date.UTC(2100, 0, 1)

function response(id: string, overrides: Partial<CachedResponse> = {}): CachedResponse {
  return {
    id,
    scope: 's',
    text: `question ${id}`,
    keyId: 'key-1',
    completion: { id: `c-${id}`, model: 'm', parts: [{ type: 'text', text: `answer ${id}` }], finish: 'stop' },
    promptTokens: 12,
    storedAt: 0,
    expiresAt: YEAR_2100,
    comparable: true,
    ...overrides,
  }
}

/**
 * Declares the tests that every `ResponseStore` must pass.
 *
 * @example
 * testResponseStore('myResponses', async () => myResponses(), { afterEach, beforeEach, describe, expect, it })
 */
export function testResponseStore(name: string, make: () => Promise<ResponseStore>, api: TestApi): void {
  const { beforeEach, describe, expect, it } = api

  describe(`${name} fulfills the response store contract`, () => {
    let store: ResponseStore

    beforeEach(async () => {
      store = await make()
    })

    it('returns undefined for an unknown id', async () => {
      expect(await store.get('unknown')).toBeUndefined()
    })

    it('returns a stored response unchanged', async () => {
      expect(await store.put(response('a'))).toBe(true)
      expect(await store.get('a')).toEqual(response('a'))
      if (store.peek !== undefined) expect(await store.peek('a')).toEqual(response('a'))
    })

    it('replaces a response with the same id', async () => {
      await store.put(response('a'))
      await store.put(response('a', { text: 'another question' }))
      expect(await store.get('a')).toMatchObject({ text: 'another question' })
    })

    it('changes thresholds, and ignores an unknown id', async () => {
      await store.put(response('a'))
      await store.amend('a', { threshold: 0.97, maxHitSimilarity: 0.96 })
      await store.amend('unknown', { threshold: 0.97 })
      expect(await store.get('a')).toEqual(response('a', { threshold: 0.97, maxHitSimilarity: 0.96 }))
      expect(await store.get('unknown')).toBeUndefined()
    })

    it('removes a response, and ignores an unknown id', async () => {
      await store.put(response('a'))
      await store.remove('a')
      await store.remove('unknown')
      expect(await store.get('a')).toBeUndefined()
    })

    it('reports a scope as comparable while it has an entry that may be compared', async () => {
      expect(await store.hasComparable('s')).toBe(false)
      await store.put(response('exact', { comparable: false }))
      expect(await store.hasComparable('s')).toBe(false)
      await store.put(response('a'))
      expect(await store.hasComparable('s')).toBe(true)
      expect(await store.hasComparable('t')).toBe(false)
      await store.remove('a')
      expect(await store.hasComparable('s')).toBe(false)
    })

    it('clears the responses of one key, then all responses', async () => {
      await store.put(response('a'))
      await store.put(response('b', { keyId: 'key-2' }))
      await store.clear('key-1')
      expect(await store.get('a')).toBeUndefined()
      expect(await store.get('b')).toEqual(response('b', { keyId: 'key-2' }))
      await store.clear()
      expect(await store.get('b')).toBeUndefined()
      expect(await store.hasComparable('s')).toBe(false)
    })

    it('clears only the responses of the given key, even if its id is a prefix of another', async () => {
      await store.put(response('a', { keyId: 'key' }))
      await store.put(response('b', { keyId: 'key:1' }))
      await store.clear('key')
      expect(await store.get('a')).toBeUndefined()
      expect(await store.get('b')).toEqual(response('b', { keyId: 'key:1' }))
    })

    it('grants a claim to only one request until the claim is released, if the store supports claims', async () => {
      const { claims } = store
      if (claims === undefined) return
      expect(await claims.isHeld('a')).toBe(false)
      const acquired = await Promise.all(['a', 'a', 'a'].map((id) => claims.acquire(id, 60_000)))
      expect(acquired.filter(Boolean)).toHaveLength(1)
      expect(await claims.isHeld('a')).toBe(true)
      expect(await claims.acquire('b', 60_000)).toBe(true)
      await claims.release('a')
      expect(await claims.isHeld('a')).toBe(false)
      expect(await claims.isHeld('b')).toBe(true)
    })

    it('counts its entries', async () => {
      await store.put(response('a'))
      await store.put(response('b'))
      expect(store.size().entries).toBe(2)
    })
  })
}
