import { describe, expect, it } from 'vitest'
import { chatPrompt, constantEmbedder, createFixture } from './fixture.ts'

const question = { keyId: 'key-1', modelName: 'chat/large' }

describe('peek', () => {
  it('returns the result of a look-up without an effect on the statistics', async () => {
    const { cache, teach } = createFixture()
    await teach('What is the capital of France?', 'Paris.')
    const before = cache.stats()

    const same = await cache.peek({ ...question, prompt: chatPrompt('What is the capital of France?') })
    const similar = await cache.peek({ ...question, prompt: chatPrompt("What's the capital of France?") })
    const other = await cache.peek({ ...question, prompt: chatPrompt('How deep is the sea?') })

    expect(same).toMatchObject({ hit: true, similarity: 1 })
    expect(similar.hit).toBe(true)
    expect(other.hit).toBe(false)
    expect(cache.stats()).toEqual(before)
  })

  it('does not count as use of an entry', async () => {
    const { cache, teach, recall } = createFixture({ maxEntries: 2 })
    await teach('first question of them all', 'one')
    await teach('another thing entirely, the weather', 'two')
    await cache.peek({ ...question, prompt: chatPrompt('first question of them all') })
    await teach('something about the price of boats', 'three')

    expect(await recall('first question of them all')).toBeUndefined()
    expect(await recall('another thing entirely, the weather')).toBe('two')
  })

  it('does not call a custom embedder or verifier', async () => {
    const own = constantEmbedder()
    let calls = 0
    const embedder = {
      ...own,
      embed: async (texts: readonly string[]) => {
        calls += 1
        return own.embed(texts)
      },
    }
    const { cache, teach } = createFixture({ embedder })
    await teach('What is the capital of France?', 'Paris.')
    const before = calls

    const found = await cache.peek({ ...question, prompt: chatPrompt('what is the capital of france, please') })

    expect(found.hit).toBe(false)
    expect(calls).toBe(before)
  })
})
