import { describe, expect, it } from 'vitest'
import { cerebras, gemini, groq, mistral, together } from '../../src/providers.ts'

describe('the small model of the catalog', () => {
  it.each([gemini, groq, mistral, together, cerebras])('is a cheaper model of its family at provider %#', (create) => {
    const { models, model: find } = create({ apiKey: 'sk-test-key' })
    const chatModels = models.filter(
      ({ family, price }) => ['gemini', 'llama', 'mistral'].includes(family) && price.output > 0,
    )
    expect(chatModels).not.toEqual([])
    for (const { id, family, price, small } of chatModels) {
      const isCheaper = (other: (typeof models)[number]) =>
        other.family === family &&
        other.contextWindowTokens >= 16_384 &&
        other.price.input < price.input &&
        other.price.output < price.output
      if (chatModels.some(isCheaper)) expect(small, id).toBeDefined()
      const smallModel = small === undefined ? undefined : find(small)
      if (small !== undefined) expect(smallModel?.family).toBe(family)
      expect(smallModel?.price.input ?? 0, id).toBeLessThanOrEqual(price.input)
      expect(smallModel?.price.output ?? 0, id).toBeLessThanOrEqual(price.output)
    }
  })

  it.each([
    [gemini, 'gemini-3.1-pro-preview', 'gemini-2.5-flash-lite'],
    [groq, 'llama-3.3-70b-versatile', 'llama-3.1-8b-instant'],
    [mistral, 'mistral-large-latest', 'ministral-3b-latest'],
  ])('is for provider %#, %s: %s', (create, id, small) => {
    expect(create({ apiKey: 'sk-test-key' }).model(id)?.small).toBe(small)
  })
})
