import { describe, expect, it } from 'vitest'
import type { JsonObject } from '../../src/core/json.ts'
import { constantEmbedder, chat, createFixture } from '../plugins/cache/fixture.ts'
import { cases, fc } from '../support/properties.ts'

/** The values that must be equal for a hit, with few variants, so that requests often match. */
const context = fc.record({
  keyId: fc.constantFrom('key-1', 'key-2'),
  modelName: fc.constantFrom('chat/large', 'chat/small'),
  system: fc.constantFrom(undefined, 'Be kind.', 'Be rude.'),
  settings: fc.constantFrom<JsonObject>(
    {},
    { temperature: 0 },
    { temperature: 1 },
    { max_tokens: 5 },
    { top_p: 0.5 },
    { stop: 'x' },
    { user: 'u' },
    { tools: [{ type: 'function', function: { name: 'f', parameters: {} } }] },
  ),
  history: fc.array(fc.constantFrom('Hi', 'Ho', ''), { maxLength: 2 }),
})

/** Spellings of one question that all match one another. */
const SPELLINGS = [
  'Is it far to the moon?',
  'is it far to the moon',
  "Hi, is it far to moon's?",
  'Is it really far to the moon?',
]
/** Each sequence uses few contexts, so that some requests have equal ones. */
const sequence = fc
  .array(context, { minLength: 1, maxLength: 4 })
  .chain((contexts) =>
    fc.array(
      fc.record({ context: fc.constantFrom(...contexts), text: fc.constantFrom(...SPELLINGS), stream: fc.boolean() }),
      { minLength: 2, maxLength: 30 },
    ),
  )

type Request = typeof sequence extends fc.Arbitrary<readonly (infer T)[]> ? T : never

function promptOf({ context: { system, settings, history }, text, stream }: Request): ReturnType<typeof chat> {
  const turns = history.flatMap((content) => [
    { role: 'user', content },
    { role: 'assistant', content: 'ok' },
  ])
  const first = system === undefined ? [] : [{ role: 'system', content: system }]
  return chat({ messages: [...first, ...turns, { role: 'user', content: text }], stream, ...settings })
}

/** Names the context of a request in its response. An id of the caller's user does not change the response. */
function nameOf(context: Request['context']): string {
  return JSON.stringify(context, (name, value: unknown) => (name === 'user' ? undefined : value))
}

describe('the law of scopes', () => {
  it('no sequence of requests returns an answer across keys, models, system prompts, parameters or histories', async () => {
    let hits = 0
    await fc.assert(
      fc.asyncProperty(sequence, async (requests) => {
        const { recall, teach } = createFixture({ embedder: constantEmbedder(), similarityThreshold: 0.85 })
        for (const asked of requests) {
          const prompt = promptOf(asked)
          const { keyId, modelName } = asked.context
          const response = await recall(prompt, { keyId, modelName })
          if (response === undefined) await teach(prompt, nameOf(asked.context), { keyId, modelName })
          else expect(response).toBe(nameOf(asked.context))
          hits += response === undefined ? 0 : 1
        }
      }),
      { numRuns: cases(150) },
    )

    expect(hits).toBeGreaterThan(0)
  })
})
