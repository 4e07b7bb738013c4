import { describe, expect, it } from 'vitest'
import { type Completion, Collector, toStreamChunks } from '../../src/core/completion.ts'
import type { Part } from '../../src/core/prompt.ts'
import { isComplete } from '../support/chunk-reader.ts'
import { fc } from '../support/properties.ts'

const text = fc.string({ unit: 'grapheme', maxLength: 20 })
const count = fc.nat({ max: 1_000_000 })

const part: fc.Arbitrary<Part> = fc.oneof(
  fc.record({ type: fc.constant('text' as const), text }),
  fc.record({ type: fc.constant('thinking' as const), text, signature: text }, { requiredKeys: ['type', 'text'] }),
  fc.record({ type: fc.constant('thinking' as const), text, redacted: fc.constant(true) }),
  fc.record({ type: fc.constant('tool-call' as const), id: text, name: text, input: fc.json() }),
  fc.record({
    type: fc.constant('opaque' as const),
    native: fc.record({ dialect: fc.constant('messages' as const), value: fc.constant({ type: 'new_block' }) }),
  }),
)

const completion: fc.Arbitrary<Completion> = fc.record(
  {
    id: text,
    model: text,
    parts: fc.array(part, { maxLength: 8 }),
    finish: fc.constantFrom('stop', 'length', 'tool-call', 'stop-sequence', 'filtered', 'pause'),
    stopSequence: text,
    usage: fc.record({
      inputTokens: count,
      cacheReadTokens: count,
      cacheWriteTokens: count,
      cacheWrite1hTokens: count,
      outputTokens: count,
      reasoningTokens: count,
    }),
  },
  { requiredKeys: ['id', 'model', 'parts', 'finish'] },
)

describe('law: an answer as steps', () => {
  it('is the same answer when collected', () => {
    fc.assert(
      fc.property(completion, (stored) => {
        const collected = new Collector()
        const chunks = toStreamChunks(stored)
        for (const chunk of chunks) collected.add(chunk)
        expect(collected.completion()).toEqual(stored)
        expect(isComplete(chunks)).toBe(true)
      }),
    )
  })
})
