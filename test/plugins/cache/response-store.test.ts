import { createMemoryResponseStore } from '../../../src/plugins/cache/response-store.ts'
import { testResponseStore } from '../../contract/response-store.ts'

testResponseStore('createMemoryResponseStore', async () =>
  createMemoryResponseStore({ maxEntries: 100, maxBytes: 1_000_000, indexBytes: () => 0, onRemove: () => {} }),
)
