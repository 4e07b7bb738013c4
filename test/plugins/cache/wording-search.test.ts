import { expect, it } from 'vitest'
import { createWordingSearch, type Lookup } from '../../../src/plugins/cache/wording-search.ts'
import { ZERO } from '../../../src/core/money.ts'

function lookupOf(text: string): Lookup {
  return {
    key: { scope: 'scope', id: text, text, previousText: '', comparable: true },
    keyId: 'key',
    modelName: 'model',
    threshold: 0.95,
    cancellation: undefined,
    smallModel: () => undefined,
    spent: ZERO,
    form: undefined,
    vector: undefined,
  }
}

it('a lookup canonicalizes few long questions that were stored without a lookup', async () => {
  const search = createWordingSearch()
  const texts = ['one', 'two', 'three', 'four', 'five'].map((word) => `${'shipping '.repeat(400)}${word}`)
  for (const text of texts) await search.add(lookupOf(text), Infinity)
  const find = async (): Promise<readonly string[]> => {
    const found = await search.find(lookupOf(texts[4] ?? ''), 16)
    return found.map(({ id }) => id)
  }
  expect(await find()).not.toContain(texts[4])
  expect(await find()).toContain(texts[4])
})
