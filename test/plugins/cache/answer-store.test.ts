import { createMemoryAnswerStore } from '../../../src/plugins/cache/answer-store.ts'
import { testAnswerStore } from '../../contract/answer-store.ts'

testAnswerStore('createMemoryAnswerStore', async () =>
  createMemoryAnswerStore({ maxEntries: 100, maxBytes: 1_000_000, indexBytes: () => 0, onRemove: () => {} }),
)
