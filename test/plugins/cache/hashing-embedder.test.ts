import { describe, expect, it } from 'vitest'
import { hashEmbedding, hashingEmbedder } from '../../../src/plugins/cache/hashing-embedder.ts'
import { testEmbedder } from '../../contract/embedder.ts'

testEmbedder('the hashing embedder', hashingEmbedder)

const GOLDEN = {
  count: 75,
  first: [
    [10, -0.034898],
    [71, 0.034898],
    [78, 0.034898],
    [88, 0.034898],
    [111, -0.034898],
    [117, -0.071236],
  ],
}

function similarity(left: string, right: string): number {
  const [one, other] = [hashEmbedding(left), hashEmbedding(right)]
  return one.reduce((sum, value, index) => sum + value * (other[index] ?? 0), 0)
}

describe('the hashing embedder', () => {
  it('has the 1024 dimensions of the specification', () => {
    expect(hashingEmbedder().dimensions).toBe(1024)
  })

  it('returns the same numbers on every platform and in every version', () => {
    const vector = hashEmbedding('What is the capital of France?')
    const places = [...vector.entries()].filter(([, value]) => value !== 0)

    expect(places.length).toBe(GOLDEN.count)
    expect(places.slice(0, 6).map(([place, value]) => [place, Number(value.toFixed(6))])).toEqual(GOLDEN.first)
  })

  it.each([
    ['What is the capital of France?', "what's the capital of france"],
    ['What is the capital of France?', 'Could you please tell me what the capital of France is? Thanks!'],
    ['How do I reverse a list in Python?', 'How to reverse a list in python?'],
    ['Which countries border the black sea?', 'Which countries border the balck sea?'],
    ['Which countries border the black sea?', 'Which countires border the black sea?'],
  ])('%s | %s: are nearly the same', (left, right) => {
    expect(similarity(left, right)).toBeGreaterThanOrEqual(0.95)
  })

  it.each([
    ['What is C++?', 'What is C#?'],
    ['Is 5 enough?', 'Is 6 enough?'],
    ['How do I boil eggs?', 'Who wrote Hamlet?'],
  ])('%s | %s: are not the same', (left, right) => {
    expect(similarity(left, right)).toBeLessThan(0.95)
  })

  it('returns the zero vector for a text without words', () => {
    expect(hashEmbedding('').every((value) => value === 0)).toBe(true)
    expect(hashEmbedding(' \n ').every((value) => value === 0)).toBe(true)
  })
})
