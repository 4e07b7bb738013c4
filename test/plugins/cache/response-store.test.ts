import { expect, it } from 'vitest'
import { NO_USAGE } from '../../../src/core/money.ts'
import type { CachedResponse } from '../../../src/core/cache.ts'
import { createMemoryResponseStore } from '../../../src/plugins/cache/response-store.ts'
import { testResponseStore } from '../../contract/response-store.ts'

testResponseStore('createMemoryResponseStore', async () =>
  createMemoryResponseStore({ maxEntries: 100, maxBytes: 1_000_000, indexBytes: () => 0, onRemove: () => {} }),
)

function response(id: string, keyId: string, { length = 10, comparable = false } = {}): CachedResponse {
  const parts = [{ type: 'text' as const, text: 'x'.repeat(length) }]
  return {
    id,
    scope: 'scope',
    text: id,
    keyId,
    completion: { id: 'x', model: 'm', parts, finish: 'stop', usage: NO_USAGE },
    promptTokens: 1,
    storedAt: 0,
    expiresAt: 1000,
    comparable,
  }
}

it('a full store evicts from the key with the most bytes, even if another key has more entries', () => {
  const removed: string[] = []
  const store = createMemoryResponseStore({
    maxEntries: 1000,
    maxBytes: 100_000,
    indexBytes: () => 0,
    onRemove: ({ keyId }) => void removed.push(keyId),
  })
  for (let index = 0; index < 5; index++) store.put(response(`small-${index}`, 'small'))
  for (let index = 0; index < 4; index++) store.put(response(`large-${index}`, 'large', { length: 15_000 }))
  expect(removed.length).toBeGreaterThan(0)
  expect(new Set(removed)).toEqual(new Set(['large']))
})

it('the size of an entry includes its part of the index if other wordings can hit', () => {
  const store = createMemoryResponseStore({
    maxEntries: 10,
    maxBytes: 100_000,
    indexBytes: () => 50_000,
    onRemove: () => {},
  })
  store.put(response('exact', 'key'))
  const { bytes } = store.size()
  store.put(response('similar', 'key', { comparable: true }))
  expect(store.size().bytes).toBeGreaterThan(bytes + 50_000)
})
