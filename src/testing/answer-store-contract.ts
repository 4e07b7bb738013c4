import type { AnswerStore, CachedAnswer } from '../core/cache-ports.ts'
import type { TestApi } from './test-api.ts'

const LATER = Date.UTC(2100, 0, 1)

function answer(id: string, more: Partial<CachedAnswer> = {}): CachedAnswer {
  return {
    id,
    scope: 's',
    text: `question ${id}`,
    keyId: 'key-1',
    completion: { id: `c-${id}`, model: 'm', parts: [{ type: 'text', text: `answer ${id}` }], finish: 'stop' },
    promptTokens: 12,
    storedAt: 0,
    expiresAt: LATER,
    comparable: true,
    ...more,
  }
}

/** Declares the tests that every `AnswerStore` must pass. */
export function testAnswerStore(name: string, make: () => Promise<AnswerStore>, api: TestApi): void {
  const { beforeEach, describe, expect, it } = api

  describe(`${name} fulfills the answer store contract`, () => {
    let store: AnswerStore

    beforeEach(async () => {
      store = await make()
    })

    it('returns undefined for an unknown id', async () => {
      expect(await store.get('unknown')).toBeUndefined()
    })

    it('returns a stored answer unchanged', async () => {
      expect(await store.put(answer('a'))).toBe(true)
      expect(await store.get('a')).toEqual(answer('a'))
      if (store.peek !== undefined) expect(await store.peek('a')).toEqual(answer('a'))
    })

    it('replaces an answer with the same id', async () => {
      await store.put(answer('a'))
      await store.put(answer('a', { text: 'another question' }))
      expect(await store.get('a')).toMatchObject({ text: 'another question' })
    })

    it('changes thresholds, and ignores an unknown id', async () => {
      await store.put(answer('a'))
      await store.amend('a', { threshold: 0.97, servedAt: 0.96 })
      await store.amend('unknown', { threshold: 0.97 })
      expect(await store.get('a')).toEqual(answer('a', { threshold: 0.97, servedAt: 0.96 }))
      expect(await store.get('unknown')).toBeUndefined()
    })

    it('removes an answer, and ignores an unknown id', async () => {
      await store.put(answer('a'))
      await store.remove('a')
      await store.remove('unknown')
      expect(await store.get('a')).toBeUndefined()
    })

    it('reports a scope as comparable while it has an entry that may be compared', async () => {
      expect(await store.hasComparable('s')).toBe(false)
      await store.put(answer('exact', { comparable: false }))
      expect(await store.hasComparable('s')).toBe(false)
      await store.put(answer('a'))
      expect(await store.hasComparable('s')).toBe(true)
      expect(await store.hasComparable('t')).toBe(false)
      await store.remove('a')
      expect(await store.hasComparable('s')).toBe(false)
    })

    it('clears the answers of one key, then all', async () => {
      await store.put(answer('a'))
      await store.put(answer('b', { keyId: 'key-2' }))
      await store.clear('key-1')
      expect(await store.get('a')).toBeUndefined()
      expect(await store.get('b')).toEqual(answer('b', { keyId: 'key-2' }))
      await store.clear()
      expect(await store.get('b')).toBeUndefined()
      expect(await store.hasComparable('s')).toBe(false)
    })

    it('clears only the answers of the given key, even if its name is a prefix of another', async () => {
      await store.put(answer('a', { keyId: 'key' }))
      await store.put(answer('b', { keyId: 'key:1' }))
      await store.clear('key')
      expect(await store.get('a')).toBeUndefined()
      expect(await store.get('b')).toEqual(answer('b', { keyId: 'key:1' }))
    })

    it('grants a claim on an answer to one request until it is released, if it supports claims', async () => {
      const { claims } = store
      if (claims === undefined) return
      expect(await claims.isTaken('a')).toBe(false)
      const taken = await Promise.all(['a', 'a', 'a'].map((id) => claims.take(id, 60_000)))
      expect(taken.filter(Boolean)).toHaveLength(1)
      expect(await claims.isTaken('a')).toBe(true)
      expect(await claims.take('b', 60_000)).toBe(true)
      await claims.release('a')
      expect(await claims.isTaken('a')).toBe(false)
      expect(await claims.isTaken('b')).toBe(true)
    })

    it('counts its entries', async () => {
      await store.put(answer('a'))
      await store.put(answer('b'))
      expect(store.size().entries).toBe(2)
    })
  })
}
